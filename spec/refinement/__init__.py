"""Which protocol refines which: the ideal of each, and how each field of it is seen in the detailed state."""

from __future__ import annotations

from types import MappingProxyType

from spec.refinement.publication import publication_is_atomic
from spec.refinement.serving import serving_is_an_engine

REFINEMENTS = MappingProxyType({"publication": publication_is_atomic, "serving": serving_is_an_engine})
"""Every refinement, by the name of the detailed protocol."""

__all__ = ["REFINEMENTS", "publication_is_atomic", "serving_is_an_engine"]
