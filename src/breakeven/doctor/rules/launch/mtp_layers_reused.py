"""More drafts than the target has layers to draft them with.

Detects: MTP drafting (vLLM's mtp, SGLang's NEXTN or EAGLE without a drafter) with more drafts than the target's own MTP layers.

Why it hurts: the layers are used again on their own output, which they were not trained for, so acceptance falls faster from one
position to the next than the first one promises, while every draft still costs a step and a row to verify. vLLM refuses numbers
that are no multiple of the layers.

Evidence: num_nextn_predict_layers (or mtp_num_hidden_layers) of the target, and the number of drafts.

Remedy: nothing, if the later positions are accepted; else fewer drafts. Measure one draft and this number at the load served.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.drafter import language_config, whole
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told

_LAYERS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")


def check(evidence: Evidence) -> Iterator[Told]:
    launch, target = evidence.launch, evidence.target
    assert launch is not None
    assert target is not None
    config = language_config(target)
    key = next((name for name in _LAYERS if whole(config.get(name)) is not None), None)
    layers, drafts = whole(config.get(key)) if key is not None else None, launch.num_drafted
    method = str(launch.method.value or "")
    is_mtp = "mtp" in method.lower() or (method in ("NEXTN", "EAGLE") and not launch.drafter.value)
    if layers is None or drafts is None or drafts <= layers or not is_mtp:
        return
    refused = launch.engine == "vllm" and drafts % layers != 0
    yield Fault(
        severity="error" if refused else "info",
        confidence="high",
        title=f"{drafts} drafts of {layers} MTP layer{'s' if layers > 1 else ''}: "
        + ("vLLM takes multiples only" if refused else "the later ones are drafted by layers that were not trained for them"),
        evidence=(f"{target.path.name}/config.json: {key} is {layers}", f"{launch.source}: {drafts} drafts a round"),
        remedy=f"Draft {layers}, or a multiple of it."
        if refused
        else "Look at acceptance by position: draft no more than what is still accepted there pays for.",
        symptoms=Symptoms(vllm="load-error" if refused else "steep-decay", sglang="steep-decay"),
    )
