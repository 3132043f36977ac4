"""This release does not speculate with this target.

Detects: a target whose first release with EAGLE-3 hooks is newer than the one in use.

Why it hurts: the server refuses to start, or starts without the states that the drafter needs.

Evidence: the target's model_type against the releases in which its model file got the hooks.

Remedy: the release named, or a newer one.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told
from breakeven.engines.version_facts import first_support


def check(evidence: Evidence) -> Iterator[Told]:
    draft, target, engine = evidence.draft, evidence.target, evidence.engine
    assert draft is not None
    assert target is not None
    assert engine is not None
    model_type = str(target.config.get("model_type"))
    support = first_support(engine, model_type, draft.method or "")
    if support is None or evidence.version is None or evidence.version >= support.first:
        return
    yield Fault(
        severity="error",
        confidence="high",
        title=f"{evidence.engine_text} does not speculate with {draft.method} for {model_type}",
        evidence=(
            f"{target.path.name}/config.json: model_type is {model_type!a}",
            f"first release that does: {support.first}, {support.source}",
        ),
        remedy=f"Upgrade to {support.first} or later.",
        symptoms=Symptoms(vllm="load-error") if engine == "vllm" else Symptoms(sglang="load-error"),
    )
