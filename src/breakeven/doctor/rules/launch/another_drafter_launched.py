"""The launch command names another folder than the one examined.

Detects: a drafter path in the command whose last part differs from the folder given with --draft.

Why it hurts: everything the doctor says of the folder may not hold for what is served.

Evidence: the two paths.

Remedy: examine the folder that is served.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from breakeven.checkpoints.headers import printable
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.told import CannotDecide, Told


def check(evidence: Evidence) -> Iterator[Told]:
    launch, draft = evidence.launch, evidence.draft
    assert launch is not None
    assert draft is not None
    named = launch.drafter.value
    # a snapshot of the hub cache is called after its commit, the hub id stands two levels up
    own = {part for path in (draft.folder.path, draft.folder.path.absolute()) for part in path.parts}
    if not isinstance(named, str) or "$" in named or Path(named).name in own or f"models--{named.replace('/', '--')}" in own:
        return
    yield CannotDecide(
        question="Is the folder that was examined the drafter that is served? The command names another",
        evidence=(str(launch.drafter), f"--draft {printable(str(draft.folder.path))}"),
        provide="--draft with the path of the launch command",
    )
