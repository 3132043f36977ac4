"""vLLM guesses the kind of drafter from its path, and guesses wrong.

Detects: a speculative configuration without `method`, where the guess from the drafter's path is another method than the drafter
needs.

Why it hurts: "eagle-" anywhere in the path means EAGLE of the first kind, and is looked for before "eagle3": a folder called
Kimi-EAGLE-3 is taken for it. Without any such word the drafter is taken for a whole small model. It fails to load, or worse,
loads.

Evidence: the path in lower case; the drafter's tensors and architecture (vLLM config/speculative.py).

Remedy: always give the method.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.checkpoints.headers import printable
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told

# In the order in which vLLM tries them.
_WORDS = (("eagle-", "eagle"), ("eagle3", "eagle3"), ("dflash", "dflash"), ("dspark", "dflash"))


def check(evidence: Evidence) -> Iterator[Told]:
    launch, draft = evidence.launch, evidence.draft
    assert launch is not None
    assert draft is not None
    if launch.engine != "vllm" or not launch.speculates or launch.method.value is not None or draft.is_speculators:
        return
    path = str(launch.drafter.value or draft.folder.path)
    word, guess = next(((word, method) for word, method in _WORDS if word in path.lower()), ("", "model"))
    if draft.method not in ("eagle3", "eagle"):
        return
    found = f'"{word}" stands in it' if word else "no word in it names a method, so it counts as a whole model"
    is_wrong = guess != draft.method
    yield Fault(
        severity="error" if is_wrong else "info",
        confidence="high",
        title=(
            f"vLLM takes this drafter for {'EAGLE of the first kind' if guess == 'eagle' else guess!r}, by its path"
            if is_wrong
            else "The method is not given; vLLM guesses it from the drafter's path, rightly as long as the folder keeps its name"
        ),
        evidence=(f"launch command: no method; path {printable(path)}: {found}", f"the drafter is {draft.method}"),
        remedy=f'Put "method": "{draft.method}" into --speculative-config.',
        symptoms=Symptoms(vllm="load-error" if is_wrong else "nothing", sglang="nothing"),
    )
