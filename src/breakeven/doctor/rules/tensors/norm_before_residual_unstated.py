"""Nothing says whether the residual starts before or after the norm.

Detects: a plain configuration with traces of speculators and without norm_before_residual.

Why it hurts: vLLM takes an absent key for true in the speculators format and for false in a plain one. A conversion that leaves
it out turns the flag over: the first position drops, deeper ones collapse.

Evidence: the key is absent; the folder was converted from the speculators format, whose trainer's default is true.

Remedy: write the key as it was in training.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told

_TRACES = ("speculators_config", "speculators_version", "verifier", "embed_requires_grad", "target_hidden_size_from_verifier")


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    if draft.is_speculators or draft.method != "eagle3" or draft.setting("norm_before_residual").key:
        return
    traces = [key for key in _TRACES if key in draft.folder.config]
    if not traces:
        return
    yield Fault(
        severity="warning",
        confidence="medium",
        title="norm_before_residual is absent after a conversion from the speculators format: vLLM now takes it for false",
        evidence=("config.json: no norm_before_residual", f"config.json: {', '.join(traces)} left from speculators, default true"),
        remedy='Write "norm_before_residual" as it was in training (the trainer\'s default is true).',
        symptoms=Symptoms(vllm="steep-decay", sglang="steep-decay"),
    )
