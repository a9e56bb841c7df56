"""Scenarios on real engines: what must hold across a weight publication, shown with real figures.

Each scenario starts its own SGLang engines on this machine, publishes weights while requests are in flight, and
compares tokens with an engine freshly started on the same weights. Negative controls must *show* the stale hit that the
protocol prevents. `python -m reef_ref.scenarios list` names them, `run NAME` runs one, `run --all` runs them all.
"""
