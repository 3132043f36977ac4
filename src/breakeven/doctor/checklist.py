"""What to look at when a drafter's drafts are not accepted: files and flags, no server needed, cheapest and likeliest first.

Verdicts print it; `breakeven doctor` does it, by the rules that each line names.
"""

from __future__ import annotations

__all__ = ["CHECKS", "static_checks"]

# (what to look at, codes of the rules that look)
CHECKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("the algorithm flag against the drafter's architecture", ("algorithm-mismatch", "method-guessed-from-path")),
    (
        "tensors dropped or missing when the drafter was loaded",
        ("tensors-misnamed", "tensors-missing", "tensors-unknown", "layer-names-dropped", "lm-head-absent"),
    ),
    (
        "the map from draft to target vocabulary (d2t: present, as offsets)",
        ("vocabulary-map-absent", "vocabulary-map-absolute", "vocabulary-map-at-odds"),
    ),
    ("the auxiliary layer ids and their convention", ("layers-defaulted", "layers-off-by-one", "layer-keys-contradict")),
    (
        "the norm flags",
        ("norm-before-residual-dropped", "fc-norm-unsupported", "norm-before-fc-unsupported", "norm-output-unsupported"),
    ),
    ("RoPE and the drafter's position limit", ("rope-contradictory", "rope-theta-differs", "position-limit")),
    ("the drafter's quantization, which may be inherited from the target", ("quantization-inherited", "quantization-announced")),
)
_HEAD = tuple(text for text, _ in CHECKS[:6])
# Drafters without a head have other things to look at, which the doctor does not know.
_OTHERS: dict[str, tuple[str, ...]] = {
    "ngram": ("the length of the match that is looked up", "whether the traffic repeats its prompt at all"),
    "suffix": ("whether the traffic repeats itself at all",),
    "draft_model": ("the drafter's tokenizer and vocabulary against the target's", CHECKS[1][0], CHECKS[6][0], CHECKS[5][0]),
    "mtp": (CHECKS[1][0], CHECKS[4][0], "the drafter's quantization"),
}


def static_checks(method: str) -> tuple[str, ...]:
    """In the order in which to look; methods that are not listed draft with a trained head."""
    return _OTHERS.get(method, _HEAD)
