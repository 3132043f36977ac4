"""What each kind of prediction is off by, on published measurements that it does not see.

    python benchmarks/prediction.py                      the tables of this repository
    python benchmarks/prediction.py --table FILE.csv     rows of another table of speedups (columns: docs/predict.md)

Rows are left out and predicted from the others (`breakeven.costs.validation`). Rounds without hardware are predicted from kernel
tables; the one free figure there, what the host adds, is fitted to the other sources' rounds. "held" is how many of the measured
values lie in the interval that would have been printed; for rows, with the error bar of all other targets.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from breakeven.costs.kernels.library import open_library
from breakeven.costs.prediction_error import KINDS, PredictionError
from breakeven.costs.prior.architecture import target_shape
from breakeven.costs.prior.drafter import default_drafter
from breakeven.costs.prior.kernel_surface import KernelSurface
from breakeven.costs.prior.parts import Kernels
from breakeven.costs.table_file import read_speedups
from breakeven.costs.validation import LeftOut, coverage, impossible, leave_out, summary

HERE = Path(__file__).parent
ROWS = HERE / "data" / "published_speedups.csv"
ROUNDS = HERE / "data" / "published_rounds.csv"
HOST_SCALES = [0.0, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 1.8, 2.2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One published cost of a round, and the surface that predicts it."""

    name: str
    source: str
    batch: int
    drafts: int
    cost: float
    plain_s: float
    surface: KernelSurface


def rounds(path: Path = ROUNDS) -> list[Round]:
    found = []
    kernels: dict[tuple[str, str], Kernels] = {}
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            where = row["system"], row["engine"]
            kernels.setdefault(where, Kernels(open_library(*where)))
            target = target_shape(HERE.parent / row["shape"])
            surface = KernelSurface(
                kernels=kernels[where],
                target=target,
                drafter=replace(default_drafter(target), draft_vocab=int(row["draft_vocab"])),
                parallel=int(row["tensor_parallel"]),
                context=1024,
            )
            found.append(
                Round(
                    name=row["name"],
                    source=row["source"],
                    batch=int(row["batch"]),
                    drafts=int(row["drafts"]),
                    cost=float(row["cost"]),
                    plain_s=float(row["plain_ms"]) * 1e-3,
                    surface=surface,
                )
            )
    return found


def kernel_errors(known: Sequence[Round], *, calibrated: bool) -> list[tuple[Round, float, float]]:
    """Round, log of predicted over published c, and the fitted host scale; the host's share fitted to the other sources."""

    def error(one: Round, scale: float) -> float:
        surface = replace(one.surface, host_scale=scale, measured_plain={one.batch: one.plain_s} if calibrated else {})
        return math.log(surface.cost(one.batch, one.drafts).value / one.cost)

    errors = {(id(one), scale): error(one, scale) for one in known for scale in HOST_SCALES}
    found = []
    for source in dict.fromkeys(one.source for one in known):
        others = [one for one in known if one.source != source]

        def misfit(scale: float, others: list[Round] = others) -> float:
            # each source counts once, however many rounds it published
            by_source = {
                name: [abs(errors[id(o), scale]) for o in others if o.source == name] for name in {o.source for o in others}
            }
            return statistics.fmean(statistics.fmean(values) for values in by_source.values())

        best = min(HOST_SCALES, key=misfit)
        found += [(one, errors[id(one), best], best) for one in known if one.source == source]
    return found


def kernel_summary(found: Sequence[tuple[Round, float, float]]) -> PredictionError:
    left = sorted(abs(error) for _, error, _ in found)
    return PredictionError(
        what="kernel tables",
        half=math.expm1(statistics.median(left)),
        tenth=math.expm1(left[min(len(left) - 1, math.floor(0.9 * len(left)))]),
        num=len(left),
        num_targets=len({one.name.split(" EAGLE")[0] for one, _, _ in found}),
    )


def _print_rows(path: Path) -> tuple[LeftOut, ...]:
    rows = read_speedups(path)
    found = leave_out(rows)
    void = impossible(rows)
    print(f"{path.name}: {len(rows)} rows, {sum(row.cost is not None for row in rows)} with a cost, {len(void)} impossible")
    for row in void:
        print(f"  impossible: row {row.number} {row.label}: c at most {row.highest_cost:.2f}")
    print(f"{'from':26} {'median':>7} {'90 %':>7} {'worst':>7} {'number':>7} {'targets':>8} {'held':>6}   printed")
    for kind in KINDS:
        own = [one for one in found if one.kind == kind]
        if not own:
            continue
        told = summary(found, kind, kind)
        worst = max(math.expm1(abs(one.error)) for one in own)
        printed = KINDS[kind]
        print(
            f"{kind:26} {told.half:7.1%} {told.tenth:7.1%} {worst:7.1%} {told.num:7} {told.num_targets:8} "
            f"{coverage(found, kind):6.0%}   {printed.half:.0%}, {printed.tenth:.0%}"
        )
    return found


def _print_rounds() -> None:
    known = rounds()
    for calibrated in (False, True):
        found = kernel_errors(known, calibrated=calibrated)
        told = kernel_summary(found)
        held = statistics.fmean(_holds(one, scale, calibrated=calibrated) for one, _, scale in found)
        print(
            f"\nkernel tables{', calibrated with the plain step' if calibrated else ''}: median {told.half:.1%}, "
            f"90 % {told.tenth:.1%}, {told.num} rounds of {told.num_targets} targets, held {held:.0%}"
        )
        for one, error, scale in found:
            kernels = replace(one.surface, measured_plain={})
            step = kernels.plain_s(one.batch)
            print(
                f"  {one.name:22} B={one.batch:<3} k={one.drafts}  c {one.cost:.2f}  predicted {one.cost * math.exp(error):.2f} "
                f"({error:+.0%})  host x{scale:g}  plain {one.plain_s * 1e3:.1f} ms, predicted {step * 1e3:.1f}"
            )


def _holds(one: Round, scale: float, *, calibrated: bool) -> float:
    surface = replace(one.surface, host_scale=scale, measured_plain={one.batch: one.plain_s} if calibrated else {})
    cost = surface.cost(one.batch, one.drafts)
    factor = 1.0 + KINDS["kernel tables"].tenth
    return float(min(cost.low, cost.value / factor) <= one.cost <= max(cost.high, cost.value * factor))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, help="another table of speedups, as CSV")
    chosen = parser.parse_args()
    _print_rows(chosen.table or ROWS)
    if chosen.table is None:
        _print_rounds()


if __name__ == "__main__":
    main()
