"""What an accept length gives where c was measured elsewhere and is told as a number: by number of drafts, at one load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from breakeven.costs.acceptance_curve import AcceptanceCurve
from breakeven.costs.cost_ratio import IMPOSSIBLE_BELOW
from breakeven.costs.surface import Cost, UnknownCost
from breakeven.doctor.public_figures import LAUNCH_DRIFT
from breakeven.errors import UsageError
from breakeven.printed.figures import PrintedFigure
from breakeven.units import plural
from breakeven.verdict.predicted.result import Prediction
from breakeven.verdict.predicted.surfaces import batch_predictions, headline

__all__ = ["predict_from_costs", "read_costs"]

EXPECTED = "expected c by number of drafts, such as 3:1.95 or 1:1.40,3:1.95"
MOST = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """c at `batch` alone, each within what its digits and the usual drift between launches leave open."""

    batch: int
    costs: Mapping[int, PrintedFigure]
    kind: str = "given"

    def cost(self, batch: int, num_drafted: int) -> Cost:
        """As `CostSurface.cost`."""
        if num_drafted == 0:
            return Cost(value=1.0, low=1.0, high=1.0)
        figure = self.costs.get(num_drafted)
        if figure is None or batch != self.batch:
            raise UnknownCost(f"c was given for {', '.join(map(str, self.costs))} drafts at B={self.batch}, and for nothing else")
        drift = 1.0 + LAUNCH_DRIFT[0]
        low, high = (figure.value - figure.half_width) / drift, (figure.value + figure.half_width) * drift
        return Cost(
            value=figure.value,
            low=min(max(low, IMPOSSIBLE_BELOW), figure.value),
            high=high,
            doubts=self._doubts(num_drafted, drift),
        )

    def _doubts(self, num_drafted: int, drift: float) -> tuple[str, ...]:
        """More drafts cannot cost less: what falls by more than launches differ is of two deployments, or misread."""
        mine = self.costs[num_drafted].value
        falls = [
            (min(k, num_drafted), max(k, num_drafted))
            for k, other in self.costs.items()
            if (mine * drift < other.value if k < num_drafted else other.value * drift < mine if k > num_drafted else False)
        ]
        return tuple(
            f"c falls from {self.costs[fewer]} with {plural(fewer, 'draft')} to {self.costs[more]} with {more}, and a round with "
            "more drafts cannot cost less: one of the two is of another load or deployment, or misread"
            for fewer, more in falls[:1]
        )


def read_costs(text: str) -> dict[int, PrintedFigure]:
    """`3:1.95` or several of them.

    Raises:
        UsageError: not of this form, or a c that no round can have.
    """
    found: dict[int, PrintedFigure] = {}
    for part in text.split(","):
        drafts, colon, cost = (word.strip() for word in part.partition(":"))
        try:
            figure = PrintedFigure.parse(cost)
        except ValueError:
            figure = None
        if not colon or not drafts.isascii() or not drafts.isdigit() or not 0 < int(drafts[:6]) <= 1000 or figure is None:
            raise UsageError(f"--break-even {text[:60]!a}: {EXPECTED}")
        if not IMPOSSIBLE_BELOW <= figure.value <= MOST or figure.is_percent:
            raise UsageError(
                f"--break-even {text[:60]!a}: c is the time of a round in plain steps, at least 1; {EXPECTED}. Was it a speedup?"
            )
        if int(drafts) in found:
            raise UsageError(
                f"--break-even {text[:60]!a}: {int(drafts)} drafts stand there twice; give one c for each number of drafts"
            )
        found[int(drafts)] = figure
    return found


def predict_from_costs(
    costs: Mapping[int, PrintedFigure], acceptance: AcceptanceCurve, batch: int, drafts: tuple[int, ...], *, threshold: float
) -> Prediction:
    """AL / c at that batch, for the numbers of drafts whose c was given."""
    found, unknown = batch_predictions(
        _Given(batch=batch, costs=costs), acceptance, (batch,), drafts or tuple(sorted(costs)), threshold=threshold
    )
    return Prediction(
        kind="c as given",
        title="c as given",
        headline=headline(found, threshold),
        threshold=threshold,
        batches=found,
        unpredicted=unknown,
        notes=(
            f"c came without its interval; launches of one thing differ by {LAUNCH_DRIFT[0] * 100:.0f} %, which its bounds hold",
            "c belongs to one deployment, load, context and shape of drafter: of another it says nothing",
        ),
        next_measurements=("The drafter beside plain decoding on this deployment at this load, three launches of each",),
    )
