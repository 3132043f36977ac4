"""The drafter norms each auxiliary state (fc_norm, EAGLE-3.1), and this release does not.

Detects: fc_norm (or use_aux_norm) in the configuration, or fc_norm tensors, on vLLM before 0.22 or SGLang before 0.5.12.

Why it hurts: SGLang drops the tensors and feeds fc with unscaled states: nothing is accepted. vLLM refuses the unknown tensors.

Evidence: the key and the tensors; the releases that read them.

Remedy: vLLM 0.22.1 or later, SGLang 0.5.12.post1 or later.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told
from breakeven.engines.drafter_facts import drafter_fact

_FIRST = {"vllm": "0.22.1", "sglang": "0.5.12.post1"}


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    flag = draft.flag("fc_norm") if draft.flag("fc_norm").value else draft.flag("use_aux_norm")
    tensors = [role for role in draft.by_role if role.startswith(("fc_norm.", "aux_norm_"))]
    if draft.method != "eagle3" or not (flag.value or tensors) or evidence.engine is None:
        return
    known = drafter_fact(evidence.engine, "fc_norm", evidence.version)
    if known.settled == "read" or evidence.version is None:
        return
    settled = known.settled is not None
    yield Fault(
        severity="error" if settled else "warning",
        confidence="high" if settled else "low",
        title=f"{evidence.engine_text} {'does' if settled else 'may do'} without the drafter's norms of auxiliary states (fc_norm)",
        evidence=(str(flag), f"tensors: {', '.join(tensors[:4]) or 'none'}", *known.sources),
        remedy=f"Take {_FIRST[evidence.engine]} or later.",
        symptoms=Symptoms(vllm="load-error", sglang="floor"),
    )
