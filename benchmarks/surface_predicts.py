"""Does the surface of forced acceptance predict what a real drafter does on the same machine? The embedded engine, a real model.

    breakeven fetch smollm2-135m-instruct
    python benchmarks/surface_predicts.py [--runs-dir DIR] [--launches 3] [--window 4]

One run measures the break-even curve (the drafter's head, accepting to order) and, in the same launches, the drafter itself with
three drafts (models/smollm2-135m-eagle3). Its acceptance is taken from the first load alone; with the surface it predicts decoding
at every load, which is held against what the arm did there. Prints a Markdown table and exits with 1 where the predicted and the
measured interval do not touch. Goes on where it was stopped, as every run does.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import yaml

from breakeven.costs.acceptance_curve import AcceptanceCurve
from breakeven.experiment.stored_run import read_run
from breakeven.verdict.judge import judge
from breakeven.verdict.predicted.measured_run import predict_from_run
from breakeven.verdict.predicted.result import Range
from breakeven.verdict.result import Result

ROOT = Path(__file__).parents[1]
HEAD = ROOT / "models" / "smollm2-135m-eagle3"
LOADS = (1, 4)
NUM_DRAFTS = 3
THRESHOLD = 0.03
# upper over lower bound beyond which two intervals that touch show nothing: a busy machine
WIDEST = 1.5


def plan(launches: int, window_s: float) -> dict[str, object]:
    return {
        "name": "surface-predicts",
        "target": "demo:smollm2-135m-instruct",
        "engine": "local",
        "launches": {"min": launches, "max": launches},
        "max_running_requests": max(LOADS),
        "context_length": 512,
        "num_threads": 1,
        "workload": {"max_tokens": 48, "fixed_length": True},
        "load": [{"concurrency": concurrency} for concurrency in LOADS],
        "trial": {"warmup_s": 1.5, "window_s": window_s},
        "arms": {
            "plain": {},
            "trained": {"speculation": {"method": "eagle3", "num_draft_tokens": NUM_DRAFTS, "drafter": str(HEAD)}},
        },
        # the trained head itself: what a draft costs depends on its vocabulary. With its number of drafts forced, the arm `trained`
        # takes no part in the c that it is predicted from.
        "curve": {"drafter": str(HEAD), "num_draft_tokens": [1, NUM_DRAFTS], "precision": 0.05},
    }


def acceptance(result: Result, arm: str) -> AcceptanceCurve:
    """Joint acceptance of `arm` at the first load, with the interval of its accept length over launches."""
    cell = next(cell for cell in result.cells if (cell.arm, cell.load) == (arm, f"c={LOADS[0]}"))
    if cell.acceptance is None:
        raise SystemExit(f"{arm}: no acceptance was counted at c={LOADS[0]}")
    length = cell.acceptance.accept_length
    if length.low is None or length.high is None:
        raise SystemExit(f"{arm}: no interval of its accept length at c={LOADS[0]}; more launches are needed")
    return AcceptanceCurve(cell.acceptance.joint, half_width=(length.high - length.low) / 2)


def shown(value: Range) -> str:
    return f"{value.value:.2f} [{value.low:.2f}, {value.high:.2f}]"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"))
    parser.add_argument("--launches", type=int, default=3)
    parser.add_argument("--window", type=float, default=4.0)
    options = parser.parse_args()
    options.runs_dir.mkdir(parents=True, exist_ok=True)
    file = options.runs_dir / "surface-predicts.yaml"
    file.write_text(yaml.safe_dump(plan(options.launches, options.window), sort_keys=False), encoding="utf-8")

    from typer.testing import CliRunner

    from breakeven.cli import app

    done = CliRunner().invoke(app, ["bench", str(file), "--runs-dir", str(options.runs_dir)])
    if done.exit_code not in (0, 3):
        raise SystemExit(done.output)
    record = read_run(options.runs_dir / "surface-predicts")
    result = judge(record)
    print(f"| load | accept length at c={LOADS[0]} | c | predicted decode speedup | measured | |")
    print("|---|---|---|---|---|---|")
    missed = 0
    predicted = predict_from_run(record, acceptance(result, "trained"), LOADS, (NUM_DRAFTS,), threshold=THRESHOLD)
    for batch in predicted.batches:
        (point,) = batch.points
        found = next(item for item in result.comparisons if (item.arm, item.load) == ("trained", f"c={batch.batch}"))
        measured = found.decode_ratio
        if (
            measured is None
            or measured.low is None
            or measured.high is None
            or point.speedup is None
            or point.accept_length is None
        ):
            raise SystemExit(f"no interval at c={batch.batch}; more launches are needed")
        holds = point.speedup.low <= measured.high and measured.low <= point.speedup.high
        missed += not holds
        tells = point.speedup.high / point.speedup.low < WIDEST and measured.high / measured.low < WIDEST
        said = "MISSED" if not holds else "holds" if tells else "too wide to tell"
        print(
            f"| c={batch.batch} | {point.accept_length.value:.2f} | {shown(point.cost)} | {shown(point.speedup)} | "
            f"{measured.estimate:.2f} [{measured.low:.2f}, {measured.high:.2f}] | {said} |"
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
