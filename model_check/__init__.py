"""Readers of a protocol: the definition, exhaustive exploration, recoverability, mutation, stories."""
