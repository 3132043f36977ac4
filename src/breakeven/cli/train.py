"""`breakeven train PLAN`: an EAGLE-3 drafter from training data. Killed at any moment, the same command goes on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from breakeven.cli.escaping import print_message, print_result

if TYPE_CHECKING:
    from breakeven.drafter.training.progress import Progress
    from breakeven.drafter.training.training import TrainingResult

__all__ = ["train"]

EPILOG = "On several GPUs: torchrun --nproc-per-node 8 -m breakeven train PLAN. Every key of the plan is in docs/training.md."


def train(
    plan: Annotated[Path, typer.Argument(help="The training plan, train.yaml.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON (docs/training.md).")] = False,
) -> None:
    """Train an EAGLE-3 drafter, choose its best checkpoint by accept length, and write it for vLLM and SGLang."""
    import os

    from rich.console import Console

    from breakeven.checkpoints.named_path import without_detours
    from breakeven.cli.gates import raise_if_stopped, run_after, run_before
    from breakeven.drafter.training.checkpoint import newest_checkpoint
    from breakeven.drafter.training.plan import load_train_plan
    from breakeven.drafter.training.processes import leave
    from breakeven.drafter.training.training import train as run_training

    messages = Console(stderr=True)

    def say(line: str) -> None:
        print_message(messages, line)

    chosen, base = load_train_plan(plan), without_detours(plan.absolute().parent)
    alone = int(os.environ.get("WORLD_SIZE", "1")) == 1
    if chosen.gates is not None and alone and newest_checkpoint(base / chosen.out) is None:
        raise_if_stopped(run_before(chosen, base, say))
    result = run_training(chosen, base, lambda progress: say(_line(progress)), say)
    if not alone:
        if int(os.environ.get("RANK", "0")) == 0:
            if chosen.gates is not None:
                say(f"The gates run in one process: breakeven gates {plan} --after judges this drafter")
            _print_result(result, as_json)
        leave()
    if chosen.gates is not None:
        raise_if_stopped(run_after(chosen, base, say))
    _print_result(result, as_json)


def _print_result(result: TrainingResult, as_json: bool) -> None:
    import json

    from breakeven.units import plural

    if as_json:
        typer.echo(json.dumps(result.as_json(), indent=2))
        return
    print_result(f"{result.drafter}: step {result.best_step} of {result.num_steps}, in vLLM's and SGLang's layout")
    if result.accept_length is None:
        print_result("accept length: not measured (no held-out prompts)")
    else:
        interval = _interval(result.accept_length_low, result.accept_length_high)
        loops = "looping answers left out" if result.without_loops else "every answer of them loops, which flatters"
        print_result(
            f"held-out accept length {result.accept_length:.3f}{interval} with {result.num_draft_tokens} drafts over "
            f"{plural(result.num_held_out, 'prompt')}, greedy, free-running, {loops}. The best of several looks flatters a little, "
            "where there were several: breakeven eval on other prompts tells"
        )
    for doubt in result.doubts:
        print_result(f"note: {doubt}")


def _line(progress: Progress) -> str:
    accuracy = " ".join(f"{share:.3f}" for share in progress.accuracy)
    line = (
        f"step {progress.step}/{progress.num_steps}  epoch {progress.epoch + 1}  loss {progress.loss:.3f}  accuracy {accuracy}  "
        f"{progress.tokens_per_s:,.0f} tokens/s  {_duration(progress.left_s)} left"
    )
    if progress.accept_length is not None:
        found = progress.accept_length
        line += f"  held-out accept length {found.mean:.3f}{_interval(found.low, found.high)}"
    return line


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" ({low:.3f} to {high:.3f})"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
