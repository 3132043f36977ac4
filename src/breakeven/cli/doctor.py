"""`breakeven doctor`: why is acceptance poor?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from breakeven.doctor.answers import Encode

__all__ = ["EPILOG", "EXAMPLE", "doctor"]

EXAMPLE = "breakeven doctor --draft DRAFTER --target TARGET --engine sglang --engine-version 0.5.23"
EPILOG = f"Example: {EXAMPLE}  |  --launch 'vllm serve ...' --log server.log  |  Exit codes: 0 none, 1 errors, 2 bad input"


def doctor(
    draft: Annotated[str | None, typer.Option(help="Drafter: folder or hub id in the local cache.")] = None,
    target: Annotated[str | None, typer.Option(help="Target: folder, hub id in the local cache, or demo:NAME.")] = None,
    parent: Annotated[str | None, typer.Option(help="The drafter that this one was fine-tuned from.")] = None,
    engine: Annotated[str | None, typer.Option(help="vllm or sglang, where no launch command says so.")] = None,
    engine_version: Annotated[str | None, typer.Option(help="Its release, such as 0.5.23.")] = None,
    launch: Annotated[str | None, typer.Option(help="The command that starts the server, in quotes. It is read, not run.")] = None,
    plan: Annotated[Path | None, typer.Option(help="A plan that says how the server is started.")] = None,
    arm: Annotated[str | None, typer.Option(help="Which of the arms of the plan or the run.")] = None,
    log: Annotated[list[Path] | None, typer.Option(help="A server's log, or a training log; may be repeated.")] = None,
    metrics: Annotated[list[Path] | None, typer.Option(help="A dump of /metrics; may be repeated.")] = None,
    run: Annotated[Path | None, typer.Option(help="A run folder of breakeven bench.")] = None,
    answers: Annotated[Path | None, typer.Option(help="The target's answers to your traffic, as JSON lines.")] = None,
    gpu_memory: Annotated[float | None, typer.Option(min=0.1, max=10_000, help="Memory of one GPU in GiB.")] = None,
    expect: Annotated[
        float | None, typer.Option(min=1.0, max=100.0, help="Accept length that the drafter's card or another server shows.")
    ] = None,
    fix: Annotated[
        Path | None, typer.Option(help="Write a repaired copy of the drafter to this new folder, for faults with one right repair.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Name every rule that was not checked for want of input.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON (docs/doctor.md).")] = False,
) -> None:
    """Why is acceptance poor? Named fault, evidence and remedy from folders, flags, logs and metrics; nothing is started."""
    from rich.console import Console

    from breakeven.doctor.examine import examine
    from breakeven.doctor.gather import Inputs, gather
    from breakeven.doctor.repair.writing import repaired
    from breakeven.report.diagnoses import render_diagnoses

    inputs = Inputs(
        draft=draft,
        target=target,
        parent=parent,
        engine=engine,
        engine_version=engine_version,
        launch=launch,
        plan=plan,
        arm=arm,
        logs=tuple(log or ()),
        metrics=tuple(metrics or ()),
        run=run,
        answers=answers,
        gpu_memory_gib=gpu_memory,
        expected_length=expect,
    )
    evidence = gather(inputs, _tokenizer(target) if answers is not None else None)
    result = examine(evidence)
    if fix is not None:
        result = repaired(evidence, result, fix)
    if as_json:
        typer.echo(result.model_dump_json(indent=2))
    else:
        render_diagnoses(result, Console(), verbose=verbose)
    if result.has_errors:
        raise typer.Exit(1)


def _tokenizer(target: str | None) -> Encode | None:
    """The target's own tokenizer; it lives with the drafter, but needs no torch."""
    if target is None:
        return None
    from breakeven.checkpoints.resolve import resolve_model

    try:
        from breakeven.drafter.serving.tokenizer import TextTokenizer
    except ImportError:
        return None
    tokenizer = TextTokenizer.from_folder(resolve_model(target, Path.cwd()))
    return lambda text: tokenizer.encode(text, add_special_tokens=False)
