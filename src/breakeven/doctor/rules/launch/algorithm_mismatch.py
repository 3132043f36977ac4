"""The launch names another kind of drafter than the folder holds.

Detects: SGLang's --speculative-algorithm or vLLM's method, held against the drafter's tensors and architecture.

Why it hurts: an EAGLE-3 head served as EAGLE gets the target's last state in place of three auxiliary ones. SGLang does not look
at the architecture: `fc` is skipped because the widths happen to agree, the drafter's own head is replaced by the target's, and
nothing is ever accepted while the server looks healthy. vLLM builds another model class, whose tensors do not match.

Evidence: the flag; `architectures` and the width of the first attention layer (twice the model's for EAGLE-3).

Remedy: SGLang --speculative-algorithm EAGLE3; vLLM "method": "eagle3".
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import Sign, Symptoms
from breakeven.doctor.told import Fault, Told

# SGLang's NEXTN is EAGLE under another name, used for MTP layers.
_SGLANG = {"EAGLE": "eagle", "EAGLE3": "eagle3", "NEXTN": "eagle", "STANDALONE": "model", "DFLASH": "dflash", "DSPARK": "dflash"}
_VLLM = {"eagle": "eagle", "eagle3": "eagle3", "draft_model": "model", "dflash": "dflash", "dspark": "dflash", "medusa": "medusa"}
_WANTED = {
    "sglang": {
        "eagle3": "--speculative-algorithm EAGLE3",
        "eagle": "--speculative-algorithm EAGLE",
        "mtp": "--speculative-algorithm NEXTN",
        "dflash": "--speculative-algorithm DFLASH",
        "model": "--speculative-algorithm STANDALONE",
    },
    "vllm": {
        "eagle3": '"method": "eagle3"',
        "eagle": '"method": "eagle"',
        "mtp": '"method": "mtp"',
        "dflash": '"method": "dflash"',
        "medusa": '"method": "medusa"',
        "model": '"method": "draft_model"',
    },
}
_KINDS = {
    "eagle3": "an EAGLE-3 head",
    "eagle": "an EAGLE head of the first kind",
    "mtp": "MTP layers",
    "dflash": "a DFlash head",
    "medusa": "Medusa heads",
    "model": "a whole small model",
}
# Served alike: SGLang runs MTP layers as EAGLE.
_ALIKE = {("sglang", "eagle", "mtp")}


def check(evidence: Evidence) -> Iterator[Told]:
    launch, draft = evidence.launch, evidence.draft
    assert launch is not None
    assert draft is not None
    asked = launch.method
    kind = (_SGLANG if launch.engine == "sglang" else _VLLM).get(str(asked.value))
    wanted = _WANTED[launch.engine].get(draft.method or "")
    if kind is None or draft.method in (None, kind) or (launch.engine, kind, draft.method) in _ALIKE:
        return
    if draft.method == "model" and not draft.is_whole_model:
        return  # heads of old exporters carry their target's architecture
    floor_on_sglang = (kind, draft.method) == ("eagle", "eagle3")
    yield Fault(
        severity="error",
        confidence="high",
        title=f"The launch asks for {asked.value}, but the drafter is {_KINDS[str(draft.method)]}",
        evidence=(str(asked), f"config.json: architectures is {draft.architecture or 'absent'}", *_width(evidence)),
        remedy=f"Start the server with {wanted}." if wanted is not None else "SGLang has no such method; vLLM has.",
        symptoms=Symptoms(vllm="load-error", sglang="floor" if floor_on_sglang else _on_sglang(draft.method)),
    )


def _on_sglang(method: str) -> Sign:
    """Heads of another kind lack what SGLang asks of the one it was told of (set_embed, hot_token_id)."""
    return "load-error" if method in ("model", "medusa") else "not known"


def _width(evidence: Evidence) -> Iterator[str]:
    draft = evidence.draft
    assert draft is not None
    for name in ("layer.self_attn.q_proj.weight", "layer.self_attn.q_a_proj.weight"):
        query = draft.by_role.get(name)
        if query is not None and draft.hidden:
            yield f"{query.file.name}: {name.removeprefix('layer.')} is {list(query.shape)}, hidden_size is {draft.hidden}"
