"""Gate: is the exported folder the head that was trained?

It is read back by the strictest reader there is, and held against the trained head part by part, so that the part at fault is
named; then both draft the same answers, because what is equal on paper must draft equal tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import torch
from torch import Tensor

from breakeven.checkpoints.folder import ModelFolder, open_folder
from breakeven.drafter.evaluation.held_out import HeldOut
from breakeven.drafter.evaluation.rounds import draft_rounds
from breakeven.drafter.export.provenance import read_provenance, target_provenance
from breakeven.drafter.export.reading import ImportedHead, read_head
from breakeven.drafter.gates.result import GateResult
from breakeven.drafter.model.eagle3 import Eagle3Config, Eagle3Weights
from breakeven.errors import CheckpointError

__all__ = ["export_gate"]

GATE = "export"


def export_gate(
    exported: Path,
    config: Eagle3Config,
    weights: Eagle3Weights,
    target: ModelFolder,
    held_out: HeldOut,
    target_embed: Tensor,
    *,
    num_draft_tokens: int = 3,
) -> GateResult:
    """Hold the folder `exported` against the head in memory, float32 both but for the rounding to the folder's own type."""
    try:
        head = read_head(exported, target)
        provenance = read_provenance(exported)
        stored = _stored_type(exported)
    except CheckpointError as error:
        return _failed(f"the exported folder cannot be read as this head: {error}")
    for difference in _differences(head, config, _rounded(weights, stored)):
        return _failed(f"the exported folder is another head than the one that was trained: {difference}")
    if provenance is None:
        return _failed("the exported folder does not say for which target it was made (provenance.json)")
    expected = target_provenance(target)
    for name in ("template_sha256", "tokenizer_sha256", "fingerprint", "quantization"):
        if getattr(provenance.target, name) != getattr(expected, name):
            what = {"template_sha256": "template mismatch: the chat template", "tokenizer_sha256": "the tokenizer"}.get(name, name)
            return _failed(
                f"{what} in the exported head's provenance is not that of {target.path}: it was made for a target that is not "
                "the one served"
            )
    device = target_embed.device
    mine, theirs = (
        draft_rounds(held_out, each_config, each_weights.to(device), target_embed, num_draft_tokens)
        for each_config, each_weights in ((config, _rounded(weights, stored)), (head.config, head.weights))
    )
    different = sum(first.drafts != second.drafts for first, second in zip(mine, theirs, strict=True))
    if different:
        return _failed(f"the exported head drafts other tokens on {different} of {len(mine)} held-out prompts")
    num_rounds = sum(len(answer.accepted) for answer in mine)
    return GateResult(
        gate=GATE,
        outcome="passed",
        summary=f"read back, the exported folder is the trained head, and drafts the same tokens in {num_rounds} rounds",
        figures={"num_rounds": num_rounds, "num_accepted": sum(sum(answer.accepted) for answer in mine)},
    )


def _differences(head: ImportedHead, config: Eagle3Config, weights: Eagle3Weights) -> Iterator[str]:
    found = head.config
    if found.auxiliary_layers != config.auxiliary_layers:
        yield (
            f"auxiliary layers {list(found.auxiliary_layers)} (layer inputs) are written, {list(config.auxiliary_layers)} were "
            "trained"
        )
    for part in ("draft_vocab_size", "fc_norm", "norm_output", "norm_before_fc", "norm_before_residual"):
        if getattr(found, part) != getattr(config, part):
            yield f"{part} is {getattr(found, part)}, trained was {getattr(config, part)}"
    for part in ("rope_theta", "rms_norm_eps", "num_heads", "num_kv_heads", "head_dim", "intermediate_size"):
        if getattr(found.shape, part) != getattr(config.shape, part):
            yield f"{part} is {getattr(found.shape, part)}, trained was {getattr(config.shape, part)}"
    if _scaling(found) != _scaling(config):
        yield f"rotary positions are scaled by {_scaling(found) or 'nothing'}, trained was {_scaling(config) or 'nothing'}"
    device = weights.target_ids.device
    if not torch.equal(head.weights.target_ids.to(device), weights.target_ids):
        wrong = int((head.weights.target_ids.to(device) != weights.target_ids).sum())
        yield f"d2t maps {wrong} of {len(weights.target_ids)} draft tokens to other target tokens"
    for name in (part.name for part in fields(Eagle3Weights) if part.name != "target_ids"):
        mine, theirs = getattr(weights, name), getattr(head.weights, name)
        if (mine is None) != (theirs is None):
            yield f"{name} is {'missing' if theirs is None else 'there'}, and was {'trained' if theirs is None else 'not trained'}"
        elif mine is not None and not torch.equal(mine, theirs.to(device)):
            yield _described(name, mine, theirs.to(device))


def _described(name: str, trained: Tensor, exported: Tensor) -> str:
    if name == "fc" and torch.equal(trained, torch.cat(exported.chunk(3, dim=1)[::-1], dim=1)):
        return "the blocks of fc.weight for the low and the high state are swapped"
    if exported.dim() == 1 and bool((exported == 1).all()):
        return f"{name} is all ones, as if it had never been written"
    share = float((trained != exported).float().mean())
    return f"{name} differs in {share:.0%} of its numbers"


def _scaling(config: Eagle3Config) -> dict[str, object]:
    scaling = {key: value for key, value in config.shape.rope_scaling.items() if key not in ("rope_theta", "type")}
    scaling["rope_type"] = config.shape.rope_scaling.get("rope_type") or config.shape.rope_scaling.get("type") or "default"
    return {} if scaling["rope_type"] == "default" else scaling


def _stored_type(exported: Path) -> torch.dtype:
    stored = open_folder(exported).tensors["fc.weight"].dtype
    return {"BF16": torch.bfloat16, "F16": torch.float16}.get(stored, torch.float32)


def _rounded(weights: Eagle3Weights, dtype: torch.dtype) -> Eagle3Weights:
    parts = {part.name: getattr(weights, part.name) for part in fields(Eagle3Weights)}
    return Eagle3Weights(
        **{
            name: part.detach().to(dtype).float() if part is not None and part.is_floating_point() else part
            for name, part in parts.items()
        }
    )


def _failed(summary: str) -> GateResult:
    return GateResult(
        gate=GATE, outcome="failed", stage="export", summary=summary, remedy="export the head again, with breakeven export"
    )
