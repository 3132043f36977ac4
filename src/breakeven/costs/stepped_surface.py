"""c(B, k) from step times: (verify(B (k + 1)) + draft(B)) / verify(B), graph cliffs included."""

from __future__ import annotations

from dataclasses import dataclass

from breakeven.costs.cost_ratio import IMPOSSIBLE_BELOW
from breakeven.costs.step_times import Cliff, StepTime, StepTimes
from breakeven.costs.surface import Cost, UnknownCost
from breakeven.units import plural

__all__ = ["SteppedSurface"]

# times that fall by more with more tokens are no noise of timing
FALLING = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class SteppedSurface:
    """`verify` by tokens in the step, `draft` (of one whole round) by requests, measured with `draft_for` drafts.

    is_one_pass: the drafter makes all its drafts in one forward, so that another number of them costs the same; False: one forward
    a draft; None: not known, and the interval spans both.
    """

    verify: StepTimes
    draft: StepTimes
    draft_for: int
    is_one_pass: bool | None = None
    kind: str = "step times"

    def cost(self, batch: int, num_drafted: int) -> Cost:
        """As `CostSurface.cost`."""
        if num_drafted == 0:
            return Cost(value=1.0, low=1.0, high=1.0)
        try:
            plain, verify = self.verify.at(batch), self.verify.at(batch * (num_drafted + 1))
        except ValueError as error:
            raise UnknownCost(str(error)) from None
        try:
            draft = self.draft.at(batch)
        except ValueError:
            raise UnknownCost(
                f"the drafts of {batch} requests; draft times are known from {self.draft.fewest_tokens} to "
                f"{self.draft.most_tokens} requests: measure further"
            ) from None
        grown = num_drafted / self.draft_for
        scales = {True: (1.0, 1.0, 1.0), False: (grown, grown, grown), None: (grown, min(1.0, grown), max(1.0, grown))}
        scale, least, most = scales[self.is_one_pass]
        highest = (verify.high + draft.high * most) / plain.low
        if highest < IMPOSSIBLE_BELOW:
            raise UnknownCost(
                f"these times have a round of {num_drafted} drafts faster than a plain step (c at most {highest:.2f}), which is "
                "impossible: measure the plain step again, warmed up and with captured graphs"
            )
        return Cost(
            value=(verify.value + draft.value * scale) / plain.value,
            low=(verify.low + draft.low * least) / plain.highest,
            high=(verify.highest + draft.highest * most) / plain.low,
            doubts=tuple(self._doubts(batch, num_drafted, plain, verify, draft)),
        )

    def past_cliff(self, batch: int, num_drafted: int) -> Cliff | None:
        """The cliff that verification climbs over although the plain step does not."""
        verify, plain = self.verify.at(batch * (num_drafted + 1)), self.verify.at(batch)
        return verify.cliff if verify.cliff != plain.cliff else None

    def _doubts(self, batch: int, num_drafted: int, plain: StepTime, verify: StepTime, draft: StepTime) -> list[str]:
        tokens, doubts = batch * (num_drafted + 1), []
        cliff = self.past_cliff(batch, num_drafted)
        if cliff is not None:
            side = "may lie" if verify.is_beside_cliff else "lies"
            doubts.append(
                f"verifying {tokens} tokens {side} past a cliff: between {cliff.below} and {cliff.above} tokens a step takes "
                f"{cliff.factor:.1f} times as long, as where captured CUDA graphs end; raise the capture size to {tokens} tokens "
                f"or draft at most {max(cliff.below // batch - 1, 0)}"
            )
        if verify.is_extrapolated or plain.is_extrapolated:
            doubts.append(f"outside the step times that were measured (up to {self.verify.most_tokens} tokens): measure there")
        if draft.is_extrapolated:
            doubts.append(f"outside the draft times that were measured (up to {self.draft.most_tokens} requests): measure there")
        doubts += [
            f"a step of {plural(peak[0], 'token')} took longer ({peak[1] * 1e3:.4g} ms) than one of {step} "
            f"({time.value * 1e3:.4g} ms), and more tokens cannot take less: measure both again"
            for step, time in ((batch, plain), (tokens, verify))
            if (peak := time.peak) is not None and peak[1] > FALLING * time.value
        ]
        if self.is_one_pass is None and num_drafted != self.draft_for:
            doubts.append(f"the draft time was measured with {self.draft_for} drafts; how it grows with more is not known")
        return doubts
