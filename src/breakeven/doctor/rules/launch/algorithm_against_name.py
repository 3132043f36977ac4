"""The drafter's name says another method than the launch asks for.

Detects: SGLang's EAGLE or vLLM's "eagle" with a drafter whose path or hub id names EAGLE-3, where the folder itself is
not at hand.

Why it hurts: the method does not fit the head. SGLang serves it with an accept length of 1.00 and no error; vLLM does not start.

Evidence: the flag and the name. A name is a weak witness by itself; an accept length at the floor beside it is a strong one.

Remedy: SGLang --speculative-algorithm EAGLE3, vLLM "method": "eagle3"; --draft DIR lets the folder itself decide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from breakeven.checkpoints.headers import printable
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told

# SGLang's NEXTN is EAGLE under another name.
_FIRST_KIND = frozenset({"EAGLE", "NEXTN", "eagle"})
_EAGLE3 = re.compile(r"eagle[-_. ]?3", re.IGNORECASE)
_FLAGS = {"sglang": "--speculative-algorithm EAGLE3", "vllm": '"method": "eagle3"'}
# What SGLang still accepts of a head that it takes for another kind.
FLOOR = 1.05


def check(evidence: Evidence) -> Iterator[Told]:
    launch = evidence.launch
    assert launch is not None
    if evidence.draft is not None and evidence.draft.method is not None:
        return  # the folder decides (algorithm-mismatch)
    name = str(launch.drafter.value or (evidence.draft.folder.path.name if evidence.draft is not None else ""))
    # a name that says "eagle" alone is given to heads of both kinds, and decides nothing
    if launch.method.value not in _FIRST_KIND or not _EAGLE3.search(name):
        return
    at_floor = any(one.accept_length < FLOOR for one in evidence.observed)
    yield Fault(
        severity="error",
        confidence="high" if at_floor and launch.engine == "sglang" else "medium",
        title=f"The launch asks for {launch.method.value}, but the drafter is called {printable(name)}",
        evidence=(
            str(launch.method),
            str(launch.drafter) if launch.drafter else f"drafter folder {printable(name)}",
            *(("an accept length at the floor is what this gives",) if at_floor and launch.engine == "sglang" else ()),
        ),
        remedy=f"Start the server with {_FLAGS[launch.engine]}; --draft DIR lets the folder itself decide.",
        symptoms=Symptoms(vllm="load-error", sglang="floor"),
    )
