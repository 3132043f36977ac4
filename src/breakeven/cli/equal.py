"""`breakeven equal PLAN`: does speculation change what is said? Greedy answers, held against how plain differs from itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from breakeven.cli.escaping import print_message, print_result

__all__ = ["equal"]

INTERRUPTED = 130
ENGINE_FAILED = 3
FAULT = 1


def equal(
    plan: Annotated[Path, typer.Argument(help="The plan whose arms are compared; its run keeps the result.")],
    runs_dir: Annotated[Path, typer.Option(help="Where run folders are kept.")] = Path("runs"),
    name: Annotated[str | None, typer.Option(help="Name of the run folder, in place of the plan's.")] = None,
    num_prompts: Annotated[int, typer.Option(min=1, max=100_000, help="Prompts to ask, each once.")] = 64,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="Longest answer in tokens (default: the plan's).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Ask everything again; earlier answers are set aside.")] = False,
) -> None:
    """Ask plain and speculative arms the same prompts at temperature 0 and say whether the answers differ by more than rounding.

    Goes on where an earlier start stopped.
    """
    from breakeven.checkpoints.named_path import without_detours
    from breakeven.cli.progress import RunDisplay
    from breakeven.cli.run_name import renamed
    from breakeven.errors import EngineError, UsageError
    from breakeven.experiment.answering import collect_answers, what_to_ask
    from breakeven.experiment.kept_answers import FOLDER, set_answers_aside
    from breakeven.experiment.plan import load_plan
    from breakeven.report.equality import render_equality
    from breakeven.verdict.equality.check import judge_equality, write_equality

    chosen = renamed(load_plan(plan), name)
    asking = what_to_ask(chosen, num_prompts=num_prompts, max_tokens=max_tokens)
    if not asking.references:
        reasons = "; ".join(f"{arm}: {reason}" for arm, reason in asking.left_out.items()) or "no arm speculates"
        raise UsageError(
            f"{plan}: nothing to compare ({reasons}); expected a plain arm and one with speculation on the same engine"
        )
    folder = runs_dir / chosen.name
    messages = Console(stderr=True)
    if fresh and (aside := set_answers_aside(folder)) is not None:
        print_message(messages, f"The earlier answers are kept in {aside}")
    with RunDisplay(messages) as display:
        answered = collect_answers(chosen, folder, asking, display.tell)
    if answered is None:
        advice = f"Stopped: nothing was compared; what was answered is kept in {folder / FOLDER}. The same command goes on"
        print_message(messages, advice)
        raise typer.Exit(INTERRUPTED)
    equality = judge_equality(chosen.name, asking, answered)
    file = write_equality(folder, equality)
    if as_json:
        typer.echo(equality.model_dump_json(indent=2))
    else:
        render_equality(equality, Console())
        print_result(f"\nAnswers and result: {without_detours(file.parent.absolute())}")
    if not equality.arms:
        raise EngineError("no arm could be compared:\n  " + "\n  ".join(answered.failed.values()))
    if any(arm.outcome == "fault" for arm in equality.arms):
        raise typer.Exit(FAULT)
    if answered.failed:
        raise typer.Exit(ENGINE_FAILED)
