"""What to look at when a drafter's drafts are not accepted: files and flags, no server needed, cheapest and likeliest first."""

from __future__ import annotations

__all__ = ["static_checks"]

_CHECKS_OF_HEADS = (
    "the algorithm flag against the drafter's architecture",
    "tensors dropped or missing when the drafter was loaded",
    "the map from draft to target vocabulary (d2t: present, as offsets)",
    "the auxiliary layer ids and their convention",
    "the norm flags",
    "RoPE and the drafter's position limit",
)
_CHECKS: dict[str, tuple[str, ...]] = {
    "ngram": ("the length of the match that is looked up", "whether the traffic repeats its prompt at all"),
    "suffix": ("whether the traffic repeats itself at all",),
    "draft_model": (
        "the drafter's tokenizer and vocabulary against the target's",
        "tensors dropped or missing when the drafter was loaded",
        "the drafter's quantization, which may be inherited from the target",
        "RoPE and the drafter's position limit",
    ),
    "mtp": ("tensors dropped or missing when the drafter was loaded", "the norm flags", "the drafter's quantization"),
}


def static_checks(method: str) -> tuple[str, ...]:
    """In the order in which to look; methods that are not listed draft with a trained head."""
    return _CHECKS.get(method, _CHECKS_OF_HEADS)
