"""c(B, k) from kernel tables: steps put together from parts, the host's overheads, and a plain measurement that calibrates.

    plain(B)    = forward(B, 1) + missed
    round(B, k) = forward(B, k + 1) + missed + draft(B, k) + host(k)

The tables hold kernels, not engines. What the host adds to a round (scheduling, sampling, launching a drafter whose passes are not
captured whole) was taken from published rounds; it differs by engine and release more than anything else here, so it is a range. A
plain step measured on the machine in question settles what the tables miss of a step: kernels that are slower there, which scale
with the step, or a constant. Half of each is the value, all of one or of the other are the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from breakeven.costs.cost_ratio import IMPOSSIBLE_BELOW
from breakeven.costs.kernels.times import KernelTime, MissingKernel
from breakeven.costs.prior.architecture import TargetShape
from breakeven.costs.prior.drafter import DrafterShape, draft_round
from breakeven.costs.prior.parts import Kernels, Part, Routing, forward
from breakeven.costs.surface import Cost, UnknownCost

__all__ = ["HOST_DRAFT_S", "HOST_ROUND_S", "MISSED_S", "Breakdown", "KernelSurface"]


@dataclass(frozen=True, slots=True)
class _Range:
    value: float
    low: float
    high: float


# Seconds beyond the kernels in published rounds (benchmarks/prediction.py shows them): of a plain step, of a round, of each draft.
MISSED_S = _Range(0.7e-3, 0.0, 1.5e-3)
HOST_ROUND_S = _Range(1.0e-3, 0.3e-3, 2.5e-3)
HOST_DRAFT_S = _Range(0.6e-3, 0.1e-3, 1.0e-3)


# a measured step below this share of what its kernels were timed at is no step of this model
LEAST_OF_KERNELS = 1.0 / 3.0
# where the host is more than this of what a round adds, the prior says little: engines differ most there
MOSTLY_HOST = 0.6
# ... and where verifying attention is, how engines read the cache for several rows of a request decides
MOSTLY_ATTENTION = 0.5
ATTENTION_BOUND = (
    "most of what a round adds here is attention over several rows of a request, priced as more query heads; engines that read the "
    "cache once for all rows add little of it, others up to the upper bound; only a measurement tells"
)
HOST_BOUND = (
    "most of what a round adds here is the host's time, which no table has and which differs by engine and release; only a "
    "measurement tells"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """Where the time goes at one batch and number of drafts: the parts of a plain step, of verification and of drafting."""

    batch: int
    num_drafted: int
    plain: tuple[Part, ...]
    verify: tuple[Part, ...]
    draft: tuple[Part, ...]
    cost: Cost

    @property
    def plain_s(self) -> float:
        return _seconds(self.plain)

    @property
    def round_s(self) -> float:
        return _seconds(self.verify) + _seconds(self.draft)


@dataclass(frozen=True, slots=True)
class _Calibration:
    """Every kernel takes `scale` times as long as in the tables, and every step `missed_s` more."""

    scale: float
    missed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSurface:
    """`context`: mean cached tokens of a request. `measured_plain`: seconds of a plain step by batch, as the user measured them.

    `host_scale` multiplies what the host adds to a round; the benchmark fits it to the published rounds that it does not predict.
    """

    kernels: Kernels
    target: TargetShape
    drafter: DrafterShape
    parallel: int
    context: int
    routing: Routing = "between"
    measured_plain: Mapping[int, float] = field(default_factory=dict)
    host_scale: float = 1.0
    kind: str = "kernel tables"

    def cost(self, batch: int, num_drafted: int) -> Cost:
        """As `CostSurface.cost`; the interval is what the parts leave open, without the error of the kind."""
        if num_drafted == 0:
            return Cost(value=1.0, low=1.0, high=1.0)
        return self.breakdown(batch, num_drafted).cost

    def breakdown(self, batch: int, num_drafted: int) -> Breakdown:
        """Raises UnknownCost: a kernel that no table has."""
        try:
            plain, verify = self._forward(batch, 1), self._forward(batch, num_drafted + 1)
            draft = draft_round(
                self.kernels, self.drafter, batch=batch, num_drafted=num_drafted, context=self.context, parallel=self.parallel
            )
        except MissingKernel as missing:
            raise _unknown(missing) from None
        host = _host(num_drafted).times(self.host_scale)
        usual, *ends, doubt = *self._calibrations(batch, plain), self._doubt(batch, plain)
        bounds = [bound for end in (usual, *ends) for bound in _bounds(plain, verify, draft, host, end)]
        value = _ratio(plain, verify, draft, host.value, usual)
        if value < IMPOSSIBLE_BELOW:
            raise UnknownCost(
                f"the tables have a round of {num_drafted} drafts faster than a plain step (c = {value:.2f}), which is impossible: "
                "some of their rows are wrong here; measure the surface on the machine"
            )
        added = value * (_seconds(plain) * usual.scale + usual.missed_s) - (_seconds(plain) * usual.scale + usual.missed_s)
        if host.value > MOSTLY_HOST * added:
            doubt = (*doubt, HOST_BOUND)
        attention = _seconds(_of(verify, "attention")) - _seconds(_of(plain, "attention"))
        if attention * usual.scale > MOSTLY_ATTENTION * added:
            doubt = (*doubt, ATTENTION_BOUND)
        told = dict.fromkeys(note for part in (*verify, *draft) for note in part.time.notes if note.startswith("no measured"))
        missed = Part(group="host", name="host, and what the tables miss", time=KernelTime.exactly(usual.missed_s, "see docs"))
        return Breakdown(
            batch=batch,
            num_drafted=num_drafted,
            plain=(*_scaled(plain, usual.scale), missed),
            verify=(*_scaled(verify, usual.scale), missed),
            draft=(*_scaled(draft, usual.scale), Part(group="host", name="host: a round and its drafts", time=host)),
            cost=Cost(value=value, low=min(value, *bounds), high=max(value, *bounds), doubts=(*doubt, *told)),
        )

    def plain_s(self, batch: int) -> float:
        """Seconds of a plain step, calibrated. Raises UnknownCost."""
        try:
            plain = self._forward(batch, 1)
        except MissingKernel as missing:
            raise _unknown(missing) from None
        usual = self._calibrations(batch, plain)[0]
        return _seconds(plain) * usual.scale + usual.missed_s

    def _forward(self, batch: int, queries: int) -> tuple[Part, ...]:
        return forward(
            self.kernels,
            self.target,
            batch=batch,
            queries=queries,
            context=self.context,
            parallel=self.parallel,
            routing=self.routing,
        )

    def _calibrations(self, batch: int, plain: tuple[Part, ...]) -> tuple[_Calibration, _Calibration, _Calibration]:
        """The usual one, then both ends."""
        found = self._measured(batch, plain)
        if found is None:
            return _Calibration(1.0, MISSED_S.value), _Calibration(1.0, MISSED_S.low), _Calibration(1.0, MISSED_S.high)
        at, kernels, measured = found
        if measured < LEAST_OF_KERNELS * kernels:
            raise UnknownCost(
                f"the plain step given for B={at} takes {measured * 1e3:.3g} ms and its kernels {kernels * 1e3:.3g} ms: no machine "
                "of this kind is that fast. Is it tokens/s of the whole server, or a step of this model and precision?"
            )
        missed = measured - kernels
        if missed <= 0.0:  # a constant cannot be negative
            only = _Calibration(measured / kernels, 0.0)
            return only, only, only
        usual = _Calibration(1.0 + 0.5 * missed / kernels, 0.5 * missed)
        return usual, _Calibration(1.0, missed), _Calibration(measured / kernels, 0.0)

    def _measured(self, batch: int, plain: tuple[Part, ...]) -> tuple[int, float, float] | None:
        """The measured batch next to this one, what its kernels take, and what was measured."""
        if not self.measured_plain:
            return None
        at = min(self.measured_plain, key=lambda measured: abs(math.log(measured / batch)))
        return at, _seconds(plain) if at == batch else _seconds(self._forward(at, 1)), self.measured_plain[at]

    def _doubt(self, batch: int, plain: tuple[Part, ...]) -> tuple[str, ...]:
        found = self._measured(batch, plain)
        if found is None:
            return ()
        at, kernels, measured = found
        if 0.5 < measured / kernels < 2.0:
            return ()
        times = f"the plain step measured at B={at} is {measured / kernels:.2f} times what its kernels take"
        return (f"{times}: is it one step of the same model, precision and tensor parallel size?",)


def _unknown(missing: MissingKernel) -> UnknownCost:
    return UnknownCost(
        f"no measured kernel for {missing}; measure the surface on the machine, or predict from a table of measured speedups"
    )


def _of(parts: tuple[Part, ...], group: str) -> tuple[Part, ...]:
    return tuple(part for part in parts if part.group == group)


def _seconds(parts: tuple[Part, ...]) -> float:
    return sum(part.time.value for part in parts)


def _scaled(parts: tuple[Part, ...], scale: float) -> tuple[Part, ...]:
    return tuple(replace(part, time=part.time.times(scale)) for part in parts)


def _ratio(
    plain: tuple[Part, ...], verify: tuple[Part, ...], draft: tuple[Part, ...], host_s: float, calibration: _Calibration
) -> float:
    step = _seconds(plain) * calibration.scale + calibration.missed_s
    more = (_seconds(verify) + _seconds(draft) - _seconds(plain)) * calibration.scale
    return 1.0 + (more + host_s) / step


def _bounds(
    plain: tuple[Part, ...], verify: tuple[Part, ...], draft: tuple[Part, ...], host: KernelTime, calibration: _Calibration
) -> tuple[float, ...]:
    """c with everything low and everything high. What both steps contain errs in both alike, so routing that reads fewer experts
    reads fewer in both; and verification alone may err, as its attention of several rows does."""
    found = []
    for end, host_s in (("low", host.low), ("high", host.high)):
        rounds = sum(getattr(part.time, end) for part in (*verify, *draft)) * calibration.scale + calibration.missed_s + host_s
        steps = (sum(getattr(part.time, end) for part in plain), _seconds(plain))
        found += [rounds / (step * calibration.scale + calibration.missed_s) for step in steps]
    return tuple(found)


def _host(num_drafted: int) -> KernelTime:
    return KernelTime(
        HOST_ROUND_S.value + num_drafted * HOST_DRAFT_S.value,
        HOST_ROUND_S.low + num_drafted * HOST_DRAFT_S.low,
        HOST_ROUND_S.high + num_drafted * HOST_DRAFT_S.high,
        "published rounds",
    )
