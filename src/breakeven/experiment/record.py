"""Everything a run knows, read back from its store: what statistics, verdicts and reports start from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from breakeven.engines.base import Arm
from breakeven.experiment.objective import Objective
from breakeven.experiment.trial import Trial
from breakeven.loadgen.samples import LoadPoint

__all__ = ["RunRecord"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """`min_launches` and `max_launches` are the plan's budget of launches an arm; looks happen after each complete block.

    `objective` is what arms are judged by, `threshold` the smallest relative difference that matters to the user (0.03 = 3 %).
    `provenance` is flat text; secrets never reach it. `interrupted` says that the plan has not been carried out to its end yet.
    `failures` says of arms that could not be served why not. `facts` holds what each launched arm's engine said of itself, at its
    last launch that became ready.
    """

    name: str
    baseline: str
    threshold: float
    min_launches: int
    max_launches: int
    arms: Sequence[Arm]
    loads: Sequence[LoadPoint]
    trials: Sequence[Trial]
    objective: Objective = field(default_factory=Objective)
    provenance: Mapping[str, str] = field(default_factory=dict)
    interrupted: bool = False
    failures: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
