"""`breakeven bench PLAN`: measure a plan's arms, judge them, write a report. Killed at any moment, the same command goes on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from breakeven.cli.escaping import print_message, print_result

if TYPE_CHECKING:
    from breakeven.experiment.plan import Plan
    from breakeven.experiment.record import RunRecord

__all__ = ["bench"]

INTERRUPTED = 130
ENGINE_FAILED = 3


def bench(
    plan: Annotated[Path, typer.Argument(help="The plan (examples/smollm2-laptop/plan.yaml explains every key).")],
    runs_dir: Annotated[Path, typer.Option(help="Where run folders are kept.")] = Path("runs"),
    name: Annotated[str | None, typer.Option(help="Name of the run folder, in place of the plan's.")] = None,
    prompts: Annotated[Path | None, typer.Option(help="A .jsonl file of your own prompts, in place of the plan's.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything, show the exact commands, start nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON (docs/result-schema.md).")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure again; an earlier run is set aside, not deleted.")] = False,
) -> None:
    """Measure a plan's arms, judge them and write a report. Goes on where an earlier start of the run stopped."""
    # imported late: the client, statistics and plots take a second that `breakeven --help` should not
    from breakeven.cli.progress import RunDisplay
    from breakeven.cli.results import judged_run
    from breakeven.experiment.measure import measure, set_aside
    from breakeven.experiment.plan import load_plan
    from breakeven.experiment.store import write_report
    from breakeven.experiment.stored_run import read_run
    from breakeven.report.html import render_html
    from breakeven.report.terminal import render_terminal

    chosen = _with_flags(load_plan(plan), name, prompts)
    if dry_run:
        _show_dry_run(chosen, runs_dir / chosen.name, fresh)
        return
    folder = runs_dir / chosen.name
    messages = Console(stderr=True)
    if fresh and (aside := set_aside(folder)) is not None:
        print_message(messages, f"The earlier run is kept in {aside}")
    with RunDisplay(messages) as display:
        outcome = measure(chosen, folder, display.tell)
    if outcome.interrupted:
        record = read_run(folder)
        kept = f"{len(record.trials)} {'trial is' if len(record.trials) == 1 else 'trials are'} kept"
        advice = f"Stopped; {kept} in {folder}. The same command goes on from there"
        print_message(messages, advice)
        raise typer.Exit(INTERRUPTED)
    result = judged_run(folder)
    report = write_report(folder, render_html(result))
    if as_json:
        typer.echo(result.model_dump_json(indent=2))
    else:
        render_terminal(result, Console())
        print_result(f"\nReport: {report}")
    if without := _without_trials(read_run(folder)):
        print_message(messages, f"No verdict on {'; '.join(without)}", style="bold red")
    if outcome.failed or without:
        raise typer.Exit(ENGINE_FAILED)


def _without_trials(record: RunRecord) -> list[str]:
    """Arms that were measured in vain, each with the first reason."""
    told = []
    for arm in record.arms:
        trials = [trial for trial in record.trials if trial.arm == arm.name]
        if trials and not any(trial.valid for trial in trials):
            void = trials[0].voids[0]
            first = void.detail.splitlines()[0] if void.detail else void.code
            told.append(f"{arm.name}: all its {len(trials)} trials are void ({void.code}: {first})")
    return told


def _with_flags(plan: Plan, name: str | None, prompts: Path | None) -> Plan:
    from breakeven.cli.run_name import renamed

    plan = renamed(plan, name)
    if prompts is not None:
        workload = plan.workload.model_copy(update={"prompts": str(prompts.absolute())})
        plan = plan.model_copy(update={"workload": workload})
    return plan


def _show_dry_run(plan: Plan, folder: Path, fresh: bool) -> None:
    from breakeven.experiment.measure import budget, check_arms, commands, run_prompts
    from breakeven.experiment.stored_run import check_plan
    from breakeven.units import format_duration

    num_prompts = len(run_prompts(plan))
    check_arms(plan.arms())
    if not fresh:
        check_plan(folder, plan)
    cost = budget(plan)
    for arm, command, doubt in commands(plan):
        # the command is there to be pasted: shown whole, by its characters where they are not printable
        print_result(f"{arm}:\n  {command}" + (f"\n  ({doubt})" if doubt else ""))
    more = (
        f", up to {plan.launches.max} launches an arm where the verdict stays open" if plan.launches.max > plan.launches.min else ""
    )
    print_result(
        f"{num_prompts} prompts; {cost.num_launches} launches and {cost.num_trials} trials, "
        f"{format_duration(cost.measuring_s)} of measuring{more}"
    )
