"""Engines: one small interface, and what speaks it.

`interface` says what may be asked and what the answers mean, `errors` what can go wrong. `http`, `in_process` and `ray`
are three ways to reach an SGLang engine, `process` starts a server as a child, `checkpoint` reads a checkpoint before
any engine hears of it.
"""
