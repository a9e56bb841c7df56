"""Under which keys SGLang's prefix tree files a prompt: made with its own types, on no engine and no GPU."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence


class SGLangKeys:
    """Keys of the installed SGLang: its scheduler's request, its radix key, its child key."""

    def first_page(self, prompt: Sequence[int], adapter: str | None) -> Hashable:
        """The key of a page as long as the prompt, for a request under an adapter (`None`: the base model).

        Derived as in SGLang 0.5.23, `mem_cache/common.py` and `mem_cache/radix_cache.py`: the request's own
        `extra_key` and `cache_salt` name the subtree, the first page of its tokens the child.

        Raises:
            Exception: of any kind, where the installed SGLang has other types.
        """
        from sglang.srt.managers.schedule_batch import Req
        from sglang.srt.mem_cache.radix_cache import RadixKey
        from sglang.srt.sampling.sampling_params import SamplingParams

        request = Req(
            rid=f"reef-ref-key-of-{adapter}",
            origin_input_text="",
            origin_input_ids=array("q", prompt),
            sampling_params=SamplingParams(max_new_tokens=1),
            lora_id=adapter,
        )
        key = RadixKey(token_ids=request.origin_input_ids, extra_key=request.extra_key, cache_salt=request.cache_salt)
        child: Hashable = key.child_key(page_size=len(prompt))
        return child


__all__ = ["SGLangKeys"]
