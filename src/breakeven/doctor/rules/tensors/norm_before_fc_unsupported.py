"""The drafter norms the joined states before fc (norm_before_fc), and this engine does not.

Detects: norm_before_fc in the configuration or an input_norm tensor, on vLLM before 0.20, SGLang before 0.5.18, or any drafter
with latent attention.

Why it hurts: the states go unscaled into fc. SGLang drops the tensor silently and accepts nothing; vLLM refuses it, or drops it
where the flag is not set.

Evidence: the key (under eagle_config or at the top level) and the tensor; the releases that read them.

Remedy: a release that reads it; for latent attention, a head trained without.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told
from breakeven.engines.drafter_facts import drafter_fact

_FIRST = {"vllm": "0.20.2", "sglang": "0.5.18"}


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    flag, tensor = draft.flag("norm_before_fc"), draft.by_role.get("input_norm.weight")
    if draft.method != "eagle3" or not (flag.value is True or tensor is not None) or evidence.engine is None:
        return
    known = drafter_fact(evidence.engine, "norm_before_fc", evidence.version)
    if not draft.is_latent and (known.settled == "read" or evidence.version is None):
        return
    settled = draft.is_latent or known.settled is not None
    yield Fault(
        severity="error" if settled else "warning",
        confidence="high" if settled else "low",
        title=f"{evidence.engine_text} {'does' if settled else 'may do'} without the drafter's norm before fc (norm_before_fc)",
        evidence=(
            str(flag),
            f"tensor input_norm.weight: {'present' if tensor is not None else 'absent'}",
            *(("neither engine's class for latent attention has it",) if draft.is_latent else known.sources),
        ),
        remedy="Train the head without it." if draft.is_latent else f"Take {_FIRST[evidence.engine]} or later.",
        symptoms=Symptoms(vllm="load-error" if tensor is not None else "floor", sglang="floor"),
    )
