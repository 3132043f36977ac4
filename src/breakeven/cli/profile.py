"""`breakeven profile PLAN --arm NAME`: where an arm's time goes, by its engine's own profiler. Nothing of it is timed or stored."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from breakeven.cli.escaping import print_result

__all__ = ["profile"]

INTERRUPTED = 130


def profile(
    plan: Annotated[Path, typer.Argument(help="The plan that has the arm.")],
    arm: Annotated[str, typer.Option(help="The arm to profile; it is launched for this alone.")],
    load: Annotated[str | None, typer.Option(help="Load point, such as c=4 (default: the plan's first).")] = None,
    seconds: Annotated[float, typer.Option(min=0.1, max=600.0, help="How long the profiler runs; traces grow fast.")] = 1.0,
    runs_dir: Annotated[Path, typer.Option(help="Where run folders are kept.")] = Path("runs"),
    name: Annotated[str | None, typer.Option(help="Name of the run folder, in place of the plan's.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Launch one arm under its engine's profiler, load it, and keep the traces in the run's folder."""
    import dataclasses
    import json

    from breakeven.cli.progress import RunDisplay
    from breakeven.cli.run_name import renamed
    from breakeven.errors import UsageError
    from breakeven.experiment import profiling
    from breakeven.experiment.plan import load_plan
    from breakeven.units import format_bytes

    chosen = renamed(load_plan(plan), name)
    points = {point.label: point for point in chosen.loads()}
    label = next(iter(points)) if load is None else load
    if label not in points:
        raise UsageError(f"--load {label!a}: not in the plan; expected one of: {', '.join(points)}")
    folder = runs_dir / chosen.name
    profiled = profiling.profiled_arm(chosen, arm, folder)
    messages = Console(stderr=True)
    with RunDisplay(messages) as display:
        done = profiling.profile(chosen, profiled, points[label], folder, seconds=seconds, tell=display.tell)
    if done is None:
        messages.print("Stopped", markup=False, highlight=False)
        raise typer.Exit(INTERRUPTED)
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(done), indent=2))
        return
    what = f"{done.seconds:g} s under the profiler (which slows it: nothing here is a measurement)"
    print_result(f"{done.arm} at {done.load}, {what}:")
    for file, size in done.files.items():
        print_result(f"  {done.folder}/{file}  {format_bytes(size)}")
    print_result("Open traces in https://ui.perfetto.dev or chrome://tracing.")
