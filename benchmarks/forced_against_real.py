"""Does a round that accepts to order cost what a round of the same drafter costs when it drafts for itself? Same head, prompts,
lengths and launches; closed loop at a steady running batch.

    breakeven fetch smollm2-135m-instruct
    python benchmarks/forced_against_real.py                                          the embedded engine
    python benchmarks/forced_against_real.py --engine vllm --executable .venv-vllm    a real engine, on a GPU

Three arms: plain, the drafter, and the drafter forced to the accept length it has by itself (--accept-length). Prints for every
load c of both and their ratio with its interval over launches, and exits with 1 where that interval leaves out 1. Killed at
any moment, the same command goes on where it was; after Ctrl-C it is judged as far as it came, with exit code 130.
"""

from __future__ import annotations

import argparse
import math
import signal
import statistics
import subprocess
import sys
from pathlib import Path

import yaml

from breakeven.experiment.comparing import PAIR_ASSUMED_SD
from breakeven.experiment.cost_ratios import measure_costs
from breakeven.experiment.stored_run import read_run
from breakeven.experiment.summary import RunSummary
from breakeven.stats.intervals import Estimate, block_interval

ROOT = Path(__file__).parents[1]
HEAD = ROOT / "models" / "smollm2-135m-eagle3"
REAL, FORCED = "drafter", "forced"
# upper over lower bound of the ratio beyond which an interval that holds 1 shows nothing
WIDEST = 1.5
INTERRUPTED = 130


def plan(options: argparse.Namespace) -> dict[str, object]:
    drafting = {"method": "eagle3", "num_draft_tokens": options.drafts, "drafter": str(HEAD)}
    loads = [int(load) for load in options.loads.split(",")]
    engine: dict[str, object] = {"engine": options.engine}
    if options.executable is not None:
        engine["executable"] = str(options.executable.absolute())
    if options.engine == "local":
        engine["num_threads"] = 1
    arm = {"env": dict(pair.split("=", 1) for pair in options.env)} if options.env else {}
    return {
        "name": f"forced-against-real-{options.engine}",
        "target": options.target,
        **engine,
        "launches": {"min": options.launches, "max": options.launches},
        "max_running_requests": max(loads),
        "context_length": 1024,
        "start_timeout_s": 400,
        # more are never recorded than the loads need: recording is most of a launch
        **({} if options.engine == "local" else {"max_graph_batch": max(loads)}),
        "workload": {"max_tokens": options.max_tokens, "fixed_length": True},
        "load": [{"concurrency": load} for load in loads],
        "trial": {"warmup_s": options.warmup, "window_s": options.window},
        "arms": {
            "plain": arm,
            REAL: arm | {"speculation": drafting},
            FORCED: arm | {"speculation": drafting | {"forced_accept_length": options.accept_length}},
        },
    }


def shown(logs: Estimate) -> str:
    return f"{math.exp(logs.value):.2f} [{math.exp(logs.low):.2f}, {math.exp(logs.high):.2f}]"


def bench(file: Path, runs_dir: Path) -> int:
    """Its exit code. Ctrl-C is handed on once: a terminal would give it to both."""
    command = [sys.executable, "-m", "breakeven", "bench", str(file), "--runs-dir", str(runs_dir)]
    running = subprocess.Popen(command, start_new_session=True)
    signal.signal(signal.SIGINT, lambda *_: running.send_signal(signal.SIGINT))
    return running.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("local", "vllm", "sglang"), default="local")
    parser.add_argument("--executable", type=Path, help="vLLM, SGLang: the folder of its environment")
    parser.add_argument("--env", action="append", metavar="NAME=VALUE", help="for the engine's servers; may be repeated")
    parser.add_argument("--target", default="demo:smollm2-135m-instruct")
    parser.add_argument("--loads", default="1,4", help="requests at once, as in 1,8,64")
    parser.add_argument("--drafts", type=int, default=3)
    parser.add_argument("--accept-length", type=float, default=2.3, help="of the drafter on these prompts, at this length")
    parser.add_argument("--launches", type=int, default=3)
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--warmup", type=float, default=1.5)
    parser.add_argument("--window", type=float, default=6.0)
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"))
    options = parser.parse_args()
    options.runs_dir.mkdir(parents=True, exist_ok=True)
    chosen = plan(options)
    file = options.runs_dir / f"{chosen['name']}.yaml"
    file.write_text(yaml.safe_dump(chosen, sort_keys=False), encoding="utf-8")

    code = bench(file, options.runs_dir)
    if code not in (0, 3, INTERRUPTED):
        return code
    run = RunSummary(read_run(options.runs_dir / str(chosen["name"])))
    own = measure_costs(run).own
    print("| load | accept length, own and forced | c of the drafter | c forced | drafter / forced | |")
    print("|---|---|---|---|---|---|")
    differs = 0
    for load in run.record.loads:
        real, forced = own.get((REAL, load.label), {}), own.get((FORCED, load.label), {})
        shared = sorted(real.keys() & forced.keys())
        if not shared:
            print(f"| {load.label} | | | | | no launch of both arms counts |")
            continue
        ratio = block_interval(
            # in a block the baseline is the same and cancels
            [[statistics.median(real[block]) - statistics.median(forced[block])] for block in shared],
            assumed_sd=PAIR_ASSUMED_SD,
        )
        lengths = " and ".join(_length(run, arm, load.label, shared) for arm in (REAL, FORCED))
        c_real, c_forced = (block_interval(list(each.values()), assumed_sd=PAIR_ASSUMED_SD) for each in (real, forced))
        holds = ratio.low <= 0.0 <= ratio.high
        differs += not holds
        said = "DIFFERS" if not holds else "equal" if ratio.high - ratio.low < math.log(WIDEST) else "too wide to tell"
        print(
            f"| {load.label} | {lengths} | {shown(c_real)} | {shown(c_forced)} | {shown(ratio)}, {len(shared)} launches | {said} |"
        )
    return code if code == INTERRUPTED else 1 if differs else 0


def _length(run: RunSummary, arm: str, load: str, blocks: list[int]) -> str:
    counts = [run.acceptance_of_block(arm, load, block) for block in blocks]
    lengths = [each.accept_length for each in counts if each is not None]
    return f"{statistics.fmean(lengths):.2f}" if lengths else "not counted"


if __name__ == "__main__":
    sys.exit(main())
