"""Measurements on real SGLang engines. ``python -m benchmarks.engine``, or ``make bench-engine``."""
