"""A norm is announced without its tensor, or there without being announced.

Detects: fc_norm or norm_before_fc in config.json against fc_norm.* and input_norm tensors.

Why it hurts: an announced norm without its tensor is computed with whatever it was initialised to. A tensor without its flag is
refused by vLLM (fc_norm) or dropped silently (input_norm, and both on SGLang), so the states go unscaled into fc.

Evidence: the keys and the tensors.

Remedy: set the flag that belongs to the tensors.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import Symptoms, both
from breakeven.doctor.told import Fault, Told


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    if draft.method != "eagle3":
        return
    each = draft.flag("fc_norm") if draft.flag("fc_norm").value else draft.flag("use_aux_norm")
    found = (
        ("fc_norm", each, [role for role in draft.by_role if role.startswith(("fc_norm.", "aux_norm_"))], "load-error"),
        ("norm_before_fc", draft.flag("norm_before_fc"), [role for role in draft.by_role if role == "input_norm.weight"], "floor"),
    )
    for name, flag, tensors, on_vllm in found:
        if bool(flag.value) == bool(tensors):
            continue
        yield Fault(
            severity="error",
            confidence="high",
            title=f"The tensors of {name} are there, its flag is not"
            if tensors
            else f"{name} is announced, but its tensors are in no file",
            evidence=(str(flag), f"tensors: {', '.join(tensors[:4]) or 'none'}"),
            remedy=f'Set "{name}": true.' if tensors else "Export the drafter again; its norm's weights were lost.",
            symptoms=Symptoms(vllm="load-error" if on_vllm == "load-error" else "floor", sglang="floor")
            if tensors
            else both("floor"),
            repairable=bool(tensors),
        )
