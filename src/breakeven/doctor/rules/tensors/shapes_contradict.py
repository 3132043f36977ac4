"""A tensor's shape is not the one that the configurations give.

Detects: attention, MLP, norms, head or map against the drafter's config.json; fc against the width of the states that it names.

Why it hurts: the engine allocates by the configuration. It refuses most tensors of another shape; of attention and MLP matrices
that are larger than configured it loads the first part without a word. A configuration copied from another drafter looks like this.

Evidence: the shape, and the keys it should follow from.

Remedy: the configuration that belongs to these weights, or the drafter that belongs to this target.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.drafter import language_config, whole
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.expected import expected_shapes
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told

_PACKED = ("U8", "I8", "I32", "U32", "F4")
_VOCABULARY = ("d2t", "t2d")
# Read by trainers only.
_IGNORED = ("t2d",)


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    if draft.method not in ("eagle3", None):
        return
    wrong, refused = [], False
    theirs = whole(language_config(evidence.target).get("vocab_size")) if evidence.target is not None else None
    for role, shape in expected_shapes(draft).items():
        info = draft.by_role.get(role)
        if info is not None and role in ("t2d", "embed_tokens.weight") and theirs is not None and info.shape[:1] == (theirs,):
            continue  # as the target has it: it is vocab_size that is wrong, another rule's
        if info is not None and info.shape != shape and (role in _VOCABULARY or info.dtype not in _PACKED):
            refused |= role not in _IGNORED and not _cut_silently(role, info.shape, shape)
            wrong.append(
                f"{info.file.name}: {role.replace('layer.', 'midlayer.')} is {list(info.shape)}, config.json gives {list(shape)}"
            )
    about_fc = list(_fc(evidence))
    wrong, refused = [*wrong, *about_fc], refused or bool(about_fc)
    if not wrong:
        return
    yield Fault(
        severity="error" if any(": t2d " not in line for line in wrong) else "warning",
        confidence="high",
        title=f"{len(wrong)} tensor shape{'s' if len(wrong) > 1 else ''} contradict the configuration",
        evidence=tuple(wrong[:8]),
        remedy="Use the config.json that was exported with these weights, or the drafter that was made for this target.",
        symptoms=both("load-error" if refused else "all-positions-lower"),
    )


def _cut_silently(role: str, there: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Layers that are split over devices take the first part of a larger tensor without a word (seen in vLLM 0.32)."""
    smaller = len(there) == len(wanted) and all(mine >= asked for mine, asked in zip(there, wanted, strict=True))
    return role.startswith(("layer.mlp.", "layer.self_attn.")) and smaller


def _fc(evidence: Evidence) -> Iterator[str]:
    draft = evidence.draft
    assert draft is not None
    fc = draft.by_role.get("fc.weight")
    if fc is None or len(fc.shape) != 2 or draft.method != "eagle3":
        return
    if draft.hidden is not None and fc.shape[0] != draft.hidden:
        yield f"{fc.file.name}: fc.weight is {list(fc.shape)}, hidden_size is {draft.hidden}"
    given = draft.target_hidden
    if given and fc.shape[1] % given:  # whether the target has that width is another rule's (target-size-differs)
        yield f"{fc.file.name}: fc.weight is {list(fc.shape)}, config.json gives states of width {given}"
