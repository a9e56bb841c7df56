"""Engines: one small interface, and what speaks it.

`interface` says what may be asked and what the answers mean, `errors` what can go wrong. `http` and `in_process` are
two ways to reach an SGLang engine, `process` starts a server as a child, `checkpoint` reads a checkpoint before any
engine hears of it.
"""
