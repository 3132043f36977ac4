"""The drafter feeds back its normed state (norm_output), and this release does not.

Detects: norm_output true on vLLM before 0.22 or SGLang before 0.5.12.

Why it hurts: the flag has no tensor, so nothing fails: the first draft is normal, each further one starts from a state of another
scale and acceptance falls steeply.

Evidence: the key; the releases that read it.

Remedy: vLLM 0.22.1 or later, SGLang 0.5.12.post1 or later.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told
from breakeven.engines.drafter_facts import drafter_fact

_FIRST = {"vllm": "0.22.1", "sglang": "0.5.12.post1"}


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    flag = draft.setting("norm_output")
    if draft.method != "eagle3" or flag.value is not True or evidence.engine is None or evidence.version is None:
        return
    known = drafter_fact(evidence.engine, "norm_output", evidence.version)
    if known.settled == "read":
        return
    settled = known.settled is not None
    yield Fault(
        severity="error" if settled else "warning",
        confidence="high" if settled else "low",
        title=f"{evidence.engine_text} {'feeds' if settled else 'may feed'} back the state before the norm (norm_output)",
        evidence=(str(flag), *known.sources),
        remedy=f"Take {_FIRST[evidence.engine]} or later.",
        symptoms=both("steep-decay"),
    )
