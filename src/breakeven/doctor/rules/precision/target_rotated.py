"""The target's hidden states are rotated, the drafter was made for the others.

Detects: a target quantized with a rotation of its residual stream (QuaRot, SpinQuant and the like): its embeddings have the
lengths of the drafter's but other directions, or its quantization says so.

Why it hurts: such conversions multiply the hidden states by an orthogonal matrix, which changes nothing for the target itself.
The drafter reads those states, and to it they are noise: acceptance around zero. It is the one quantization that alone does that.

Evidence: lengths and cosines of sampled rows of the two embedding tables; transform_config or rotation keys of
quantization_config.

Remedy: multiply fc (each block of states) and the drafter's embeddings by the same rotation, retrain on the rotated target, or
serve an unrotated one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from breakeven.checkpoints.folder import ModelFolder
from breakeven.doctor.beside import side_json
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told
from breakeven.doctor.weights import UNRELATED, likeness, sampled, target_embedding

_WORDS = ("quarot", "spinquant", "hadamard", "rotat", "is_rot", "quip")
_SIDE_FILES = ("quant_model_description.json",)
MAX_DEPTH = 6


def check(evidence: Evidence) -> Iterator[Told]:
    draft, target = evidence.draft, evidence.target
    assert draft is not None
    assert target is not None
    if draft.method != "eagle3" or _mentions(draft.folder.config):
        return
    mentions = _rotation(target)
    own, theirs = draft.by_role.get("embed_tokens.weight"), target_embedding(target)
    rows = sampled(own.shape[0]) if own is not None and len(own.shape) == 2 else []
    found = likeness(own, rows, theirs, rows) if own is not None and theirs is not None and own.shape == theirs.shape else None
    rotated = found is not None and found.same_lengths and abs(found.cosine) < UNRELATED
    if not rotated and (not mentions or (found is not None and found.cosine > 0.9)):
        return
    yield Fault(
        severity="error" if rotated else "warning",
        confidence="high" if rotated else "medium",
        title="The target's hidden states are rotated; the drafter was made for the unrotated ones"
        if rotated
        else "The target's quantization speaks of a rotation; if it reaches the residual stream, the drafter reads noise",
        evidence=(
            *mentions,
            *(
                (f"embeddings of drafter and target: equal lengths, mean cosine {found.cosine:.3f} over {found.num_rows} rows",)
                if rotated and found is not None
                else ()
            ),
        ),
        remedy="Multiply the blocks of fc and the drafter's embeddings by the rotation, or retrain on this target.",
        symptoms=both("floor"),
    )


def _rotation(target: ModelFolder) -> tuple[str, ...]:
    found = []
    quantization = target.config.get("quantization_config")
    if isinstance(quantization, dict):
        transform = quantization.get("transform_config")
        groups = transform.get("config_groups") if isinstance(transform, dict) else None
        if isinstance(groups, dict) and groups:
            found.append(f"{target.path.name}/config.json: quantization_config.transform_config has {len(groups)} groups")
        elif word := _mentions(quantization):
            found.append(f"{target.path.name}/config.json: quantization_config mentions {word}")
    beside = ((name, _mentions(side_json(target.path, name))) for name in _SIDE_FILES)
    return (*found, *(f"{target.path.name}/{name} mentions {word}" for name, word in beside if word))


def _mentions(table: Mapping[str, Any], depth: int = 0) -> str:
    """The first key or text that names a rotation and is not switched off; "rotary" positions are none."""
    for key, value in table.items():
        texts = [key, value] if isinstance(value, str) else [key]
        if value not in (None, False, 0, "", {}, []):
            for text in texts:
                lower = text.lower()
                if any(word in lower for word in _WORDS) and "rotary" not in lower:
                    return text[:60]
        if isinstance(value, dict) and depth < MAX_DEPTH and (inner := _mentions(value, depth + 1)):
            return inner
    return ""
