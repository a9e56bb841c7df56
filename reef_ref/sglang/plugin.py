"""The SGLang plugin (entry point `sglang.srt.plugins`, name `reef_ref`)."""


def register() -> None:
    """Register the hooks that the environment asks for."""
    from reef_ref.sglang import cpu_memory

    cpu_memory.register()
