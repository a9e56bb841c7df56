"""Proofs for any number of elements, by induction: every property holds at first, and every action keeps it."""
