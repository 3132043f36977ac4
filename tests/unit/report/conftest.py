"""Results to render: one like the laptop demo's, one of 12 arms at 8 loads, and one in which every string attacks."""

from __future__ import annotations

import pytest

from breakeven.findings import Finding
from breakeven.verdict.result import (
    AcceptanceSummary,
    ArmInfo,
    BestOfArm,
    BreakEvenPoint,
    Cell,
    Cliff,
    Comparison,
    Conclusion,
    Interval,
    Load,
    Outcome,
    Result,
    Standing,
    VoidedTrial,
)

HOSTILE = "</script><img src=x onerror=alert(1)>|`*_[x](http://evil)@here #1 \x1b[31m\u202egnp.exe\u2028=cmd()" + "A" * 10_000


def around(value: float, share: float = 0.05) -> Interval:
    return Interval(estimate=value, low=value * (1 - share), high=value * (1 + share))


def outcome_of(ratio: float) -> Outcome:
    return "pays" if ratio > 1.1 else "slower" if ratio < 0.9 else "undecided"


def make_result(num_arms: int, concurrencies: tuple[int, ...], text: str = "") -> Result:
    """Figures follow a simple rule, so that pictures have a shape; `text` is appended to every string that comes from outside."""
    arms, cells, comparisons = [], [], []
    names = [f"arm {index}{text}" for index in range(num_arms)]
    for index, name in enumerate(names):
        forced = 1.0 + index * 0.5 if index >= 3 else None
        arms.append(
            ArmInfo(
                name=name,
                engine=f"local{text}",
                method="plain" if index == 0 else "eagle3",
                num_draft_tokens=None if index == 0 else 3,
                forced_accept_length=forced,
                is_baseline=index == 0,
                notes=text,
            )
        )
        for concurrency in concurrencies:
            ratio = 1.0 if index == 0 else 0.6 + 0.15 * index - 0.01 * concurrency**0.5
            speed = 20.0 * concurrency**0.8 * ratio
            length = 1.0 + 0.3 * index
            cells.append(
                Cell(
                    arm=name,
                    load=f"c={concurrency}",
                    num_launches=3,
                    num_trials=6,
                    num_voided=index % 2,
                    throughput=around(speed),
                    request_speed=around(speed / concurrency),
                    ttft_p50_s=0.3,
                    ttft_p95_s=0.5,
                    tpot_s=concurrency / speed,
                    acceptance=None
                    if index == 0
                    else AcceptanceSummary(
                        accept_length=around(length, 0.01),
                        draft_acceptance=0.3,
                        joint=(0.5, 0.3, 0.0),
                        conditional=(0.5, 0.6, 0.0),
                        source=f"counters{text}",
                    ),
                )
            )
            if index:
                comparisons.append(
                    Comparison(
                        arm=name,
                        baseline=names[0],
                        load=f"c={concurrency}",
                        ratio=around(ratio),
                        outcome=outcome_of(ratio) if index < 3 else None,
                        why=f"The interval says so{text}",
                        launches_to_decide=5,
                        predicted=around(ratio),
                        prefill_share=0.1,
                        gap_explained=f"agrees{text}",
                    )
                )
    points = [
        BreakEvenPoint(load=f"c={concurrency}", num_draft_tokens=3, method="eagle3", cost_ratio=around(1.3), basis=f"forced{text}")
        for concurrency in concurrencies
    ]
    return Result(
        kind="measured",
        name=f"sample{text}",
        headline=f"Speculation pays{text}",
        decision=f"Run arm 3{text}",
        what_would_change_it=(f"a longer accept length{text}",),
        baseline=names[0],
        arms=tuple(arms),
        loads=tuple(Load(label=f"c={concurrency}", concurrency=concurrency) for concurrency in concurrencies),
        cells=tuple(cells),
        comparisons=tuple(comparisons),
        break_even=tuple(points),
        own_best=tuple(
            BestOfArm(arm=name, load="c=1", throughput=around(30.0), num_running=1.0, note=f"note{text}") for name in names
        ),
        conclusions=(Conclusion(text=f"It pays{text}", evidence=(f"figures{text}",)),),
        findings=(
            Finding(
                code="accept-length-at-floor",
                severity="error",
                confidence="high",
                title=f"dead drafter{text}",
                evidence=(f"1.00{text}",),
                remedy=f"check d2t{text}",
            ),
        ),
        next_measurements=(f"forced acceptance{text}",),
        voided=(VoidedTrial(arm=names[0], load="c=1", launch=f"b0{text}", reasons=(f"queued{text}",)),),
        provenance={f"cpu{text}": f"two cores{text}"},
    )


def with_surface(result: Result, text: str = "") -> Result:
    """The same with break-even points at 1, 3 and 5 drafts, those between read off, a cliff at the last load, and arm 1 on it."""
    loads = [load.label for load in result.loads]
    points = [
        BreakEvenPoint(load=load, num_draft_tokens=k, method="eagle3", cost_ratio=around(1 + 0.1 * k), basis=f"forced{text}")
        for k in (1, 3, 5)
        for load in loads
    ]
    between = [
        BreakEvenPoint(load=load, num_draft_tokens=k, method="eagle3", cost_ratio=around(1 + 0.1 * k), basis=f"read off{text}")
        for k in (2, 4)
        for load in loads
    ]
    cliff = Cliff(
        load=loads[-1], method="eagle3", drafts_before=3, drafts_after=5, cost_before=1.3, cost_after=1.5, text=f"Cliff{text}"
    )
    standings = [
        Standing(
            arm=result.arms[1].name,
            load=load,
            method="eagle3",
            num_draft_tokens=3,
            accept_length=around(1.6, 0.01),
            break_even=around(1.3),
            side="above",
            why=f"1.6 over 1.3{text}",
        )
        for load in loads
    ]
    return result.model_copy(
        update={
            "break_even": tuple(points),
            "break_even_between": tuple(between),
            "cliffs": (cliff,),
            "standings": tuple(standings),
        }
    )


@pytest.fixture
def curve() -> Result:
    return with_surface(make_result(5, (1, 4)))


@pytest.fixture
def laptop() -> Result:
    return make_result(5, (1, 4))


@pytest.fixture
def wide() -> Result:
    return make_result(12, (1, 2, 4, 8, 16, 32, 64, 128))


@pytest.fixture
def hostile() -> Result:
    return with_surface(make_result(5, (1, 4), text=HOSTILE), text=HOSTILE)
