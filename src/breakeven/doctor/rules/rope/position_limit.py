"""The drafter's position limit is shorter than what is served.

Detects: max_position_embeddings of the drafter below the context of the launch, or of the target.

Why it hurts: SGLang does not start (unless SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1). vLLM before 0.32: beyond the limit a
device-side assert in graph mode, garbage and low acceptance in eager mode; below it everything is normal. Later vLLM raises the
limit by itself for plain, linear and llama3 positions, and lowers the served context for YaRN. Trainers write 2048 because they
train at that length.

Evidence: the two numbers.

Remedy: raise max_position_embeddings to the target's if the RoPE settings agree; the rotation itself knows no limit. What lies
beyond the trained length may still be accepted less.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from breakeven.doctor.drafter import language_config
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.rope import Rope, read_rope
from breakeven.doctor.signs import Sign, Symptoms
from breakeven.doctor.told import Confidence, Fault, Severity, Told
from breakeven.engines.drafter_facts import drafter_fact

_RAISED = ("default", "linear", "llama3")
OVERRIDE = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    if not draft.has_attention:
        return
    own = read_rope(draft.layer_config)
    limit, (served, source) = own.max_positions, _served(evidence)
    # a scaled drafter's limit may be counted before scaling
    factor = (
        own.scaling.get("factor", 1.0) if own.kind != "default" and "original_max_position_embeddings" not in own.scaling else 1.0
    )
    if limit is None or served is None or limit * factor >= served:
        return
    severity, confidence, symptoms = _weight(evidence, own)
    theirs = read_rope(language_config(evidence.target)) if evidence.target is not None else None
    agrees = theirs is not None and own.kind == theirs.kind and math.isclose(own.effective_theta, theirs.effective_theta)
    yield Fault(
        severity=severity,
        confidence=confidence,
        title=f"The drafter allows {limit} positions, {served} are served",
        evidence=(f"config.json: max_position_embeddings is {limit}, RoPE {own.kind}", source),
        remedy=(
            f"Set the drafter's max_position_embeddings to {served}"
            + (
                "; its RoPE settings agree with the target's."
                if agrees
                else ", after checking that its RoPE settings are those it was trained with."
            )
        ),
        symptoms=symptoms,
        repairable=agrees,
    )


def _served(evidence: Evidence) -> tuple[int | None, str]:
    launch = evidence.launch
    if launch is not None and launch.context:
        return int(launch.context.value), str(launch.context)
    if evidence.target is None:
        return None, ""
    limit = read_rope(language_config(evidence.target)).max_positions
    return limit, f"{evidence.target.path.name}/config.json: max_position_embeddings is {limit}"


def _weight(evidence: Evidence, own: Rope) -> tuple[Severity, Confidence, Symptoms]:
    on_vllm: Sign = "falls-with-context"
    known = drafter_fact("vllm", "short drafters", evidence.version)
    raised = known.settled == "raised" and own.kind in _RAISED
    if own.kind not in _RAISED:
        on_vllm = "shorter-context"
    symptoms = Symptoms(vllm=on_vllm, sglang="load-error")
    if evidence.engine == "vllm":
        return ("warning" if raised or own.kind not in _RAISED else "error"), ("medium" if known.settled else "low"), symptoms
    if evidence.engine == "sglang":
        overridden = evidence.launch is not None and evidence.launch.env.get(OVERRIDE, "0").lower() in ("1", "true")
        if overridden:
            return "warning", "medium", Symptoms(vllm=on_vllm, sglang="falls-with-context")
        return "error", "high", symptoms
    return "error", "medium", symptoms
