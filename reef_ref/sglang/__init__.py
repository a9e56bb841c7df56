"""What runs inside SGLang: a platform for machines without an accelerator, and the plugin with its hooks.

Nothing here imports SGLang or torch until it is asked to act, so that a process without them can still read the names.
"""
