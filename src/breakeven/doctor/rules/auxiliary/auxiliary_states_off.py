"""The configuration switches the auxiliary states off.

Detects: eagle_config.use_aux_hidden_state false in an EAGLE-3 head whose fc takes several states.

Why it hurts: both engines then hand over the target's last state alone and leave fc out. The head computes on a state that it was
never trained on, and next to nothing is accepted.

Evidence: the key; the width of fc.

Remedy: use_aux_hidden_state true, or leave the key out.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    flag, count = draft.flag("use_aux_hidden_state"), draft.num_auxiliary
    if draft.method != "eagle3" or flag.value is not False or count is None or count < 2:
        return
    yield Fault(
        severity="error",
        confidence="high",
        title=f"use_aux_hidden_state is false, but fc takes {count} auxiliary states",
        evidence=(str(flag), f"fc.weight is {list(draft.by_role['fc.weight'].shape)}"),
        remedy='Set "use_aux_hidden_state": true under eagle_config.',
        symptoms=both("floor"),
        repairable=True,
    )
