"""Everything computed from a run's trials, once: what the parts of a verdict read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from breakeven.costs.cost_ratio import is_impossible
from breakeven.engines.base import Arm
from breakeven.experiment.comparing import PAIR_ASSUMED_SD, Compared, compare
from breakeven.experiment.cost_ratios import Costs, measure_costs
from breakeven.experiment.record import RunRecord
from breakeven.experiment.summary import RunSummary
from breakeven.stats.decision import Outcome
from breakeven.stats.intervals import Estimate, block_interval
from breakeven.verdict.measured.accept_length import AcceptLength, accept_length
from breakeven.verdict.measured.prediction import Prediction, predict

__all__ = ["Case", "study"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`compared` holds every arm at every load point where it and the baseline have trials that count, the baseline left out.

    `impossible` maps a load point to the arms whose c lies wholly below 1 there, which voids the baseline.
    """

    run: RunSummary
    compared: Mapping[tuple[str, str], Compared]
    lengths: Mapping[tuple[str, str], AcceptLength]
    costs: Costs
    predictions: Mapping[tuple[str, str], Prediction]
    impossible: Mapping[str, tuple[str, ...]]

    @property
    def record(self) -> RunRecord:
        return self.run.record

    @property
    def loads(self) -> list[str]:
        return [load.label for load in self.record.loads]

    @property
    def candidates(self) -> list[Arm]:
        """Arms that one could run: forced ones emit junk and only measure what rounds cost, as idle ones do what carrying costs."""
        return [arm for arm in self.record.arms if arm.name != self.record.baseline and not arm.probe]

    @property
    def forced(self) -> list[Arm]:
        return [arm for arm in self.record.arms if arm.forced]

    @property
    def probes(self) -> list[str]:
        return [arm.name for arm in self.record.arms if arm.probe]

    @property
    def replaced_kernels(self) -> list[str]:
        """Arms whose figures are not their engine's, because it computed with kernels that are no release of it."""
        facts = self.record.facts
        return [arm.name for arm in self.record.arms if facts.get(arm.name, {}).get("unreleased_kernels")]

    def at(self, load: str) -> list[Compared]:
        """Comparisons of candidates at one load point, best ratio first."""
        found = [self.compared[arm.name, load] for arm in self.candidates if (arm.name, load) in self.compared]
        return sorted(found, key=lambda compared: -compared.log_ratio.value)

    def of(self, arm: str) -> list[Compared]:
        """Comparisons of one arm, in the order of load points."""
        return [self.compared[arm, load] for load in self.loads if (arm, load) in self.compared]

    def best_paying(self, load: str) -> str | None:
        """The candidate to run at a load point, where one pays there."""
        return next((compared.arm for compared in self.at(load) if self.outcome(compared) == "pays"), None)

    def is_open(self, load: str) -> bool:
        return any(self.outcome(compared) == "undecided" for compared in self.at(load))

    def own_cost(self, arm: str, load: str) -> Estimate:
        """Log c as measured on this very arm, with its own acceptance."""
        return block_interval(list(self.costs.own[arm, load].values()), assumed_sd=PAIR_ASSUMED_SD)

    def is_void(self, arm: str, load: str) -> bool:
        """The comparison does not count: unequal admission, or a baseline that cannot be right. More launches would not help."""
        return load in self.impossible or bool(self.compared[arm, load].not_comparable)

    def outcome(self, compared: Compared) -> Outcome:
        """The outcome, undecided where the baseline itself cannot be right."""
        return "undecided" if compared.load in self.impossible else compared.outcome


def study(record: RunRecord) -> Case:
    run = RunSummary(record)
    labels: Sequence[str] = [load.label for load in record.loads]
    compared = {
        (arm.name, load): result
        for arm in record.arms
        if arm.name != record.baseline
        for load in labels
        if (result := compare(run, arm.name, load)).log_ratio.usable
    }
    lengths = {
        (arm.name, load): length
        for arm in record.arms
        if arm.speculation is not None
        for load in labels
        if (length := accept_length(run, arm.name, load)) is not None
    }
    costs = measure_costs(run)
    impossible: dict[str, tuple[str, ...]] = {}
    for (arm_name, load), blocks in costs.own.items():
        if is_impossible(block_interval(list(blocks.values()), assumed_sd=PAIR_ASSUMED_SD)):
            impossible[load] = (*impossible.get(load, ()), arm_name)
    costs = costs.without_loads(impossible)
    predictions = {
        (arm_name, load): predict(run, costs, result)
        for (arm_name, load), result in compared.items()
        if not run.arm(arm_name).probe and load not in impossible and not result.not_comparable
    }
    return Case(run=run, compared=compared, lengths=lengths, costs=costs, predictions=predictions, impossible=impossible)
