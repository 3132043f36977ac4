"""`breakeven serve RUN`: launch the winner of a run again, see whether it is as fast as it was, and leave it running."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from breakeven.cli.escaping import print_result

if TYPE_CHECKING:
    from breakeven.deploy.serving import Prepared, Served

__all__ = ["serve"]

INTERRUPTED = 130


def serve(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    arm: Annotated[str | None, typer.Option(help="Serve this arm, in place of the winner.")] = None,
    load: Annotated[str | None, typer.Option(help="Load point to measure again, such as c=4 (default: where it won).")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on (default: a free one).")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Leave it running; breakeven stop RUN ends it.")] = False,
    compose: Annotated[Path | None, typer.Option(help="Write a docker compose file for the arm; starts nothing.")] = None,
    kubernetes: Annotated[Path | None, typer.Option(help="Write a Kubernetes manifest for the arm; starts nothing.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what is served as JSON.")] = False,
) -> None:
    """Launch a run's winner again with the same flags, measure it once more, and leave it running."""
    from breakeven.cli.progress import RunDisplay
    from breakeven.deploy import serving
    from breakeven.errors import UsageError
    from breakeven.experiment.run_folder import run_folder

    writes = compose is not None or kubernetes is not None
    if writes and (detach or port is not None):
        raise UsageError("--compose and --kubernetes start nothing; leave out --detach and --port")
    prepared = serving.prepare(run_folder(run), arm=arm, label=load)
    if writes:
        _write_manifests(prepared, compose, kubernetes, as_json)
        return
    with ExitStack() as live:
        display = live.enter_context(RunDisplay(Console(stderr=True)))

        def on_served(served: Served) -> None:
            # else the live line would go on for as long as the server runs
            live.close()
            _print(served, as_json)

        came_so_far = serving.serve(prepared, port=port, detach=detach, tell=display.tell, on_served=on_served)
    if not came_so_far:
        raise typer.Exit(INTERRUPTED)


def _print(served: Served, as_json: bool) -> None:
    import dataclasses
    import json
    import sys

    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(served), indent=2))
    else:
        until = f"breakeven stop {served.run} ends it" if served.detached else "Ctrl-C ends it"
        lines = [
            f"Serving {served.why}.",
            *(f"{note}." for note in served.notes),
            *(f"Warning: {warning}" for warning in served.warnings),
            f"{served.reproduction.text}.",
            "",
            f"{served.url}/v1, model {served.model}, process {served.pid}; {until}. Log: {served.log}",
            "",
            "The command, for your own deployment:",
            f"  {served.command}",
        ]
        print_result("\n".join(lines))
    sys.stdout.flush()


def _write_manifests(prepared: Prepared, compose: Path | None, kubernetes: Path | None, as_json: bool) -> None:
    import json

    from breakeven.deploy.compose import compose_file
    from breakeven.deploy.container import container
    from breakeven.deploy.files import write_new
    from breakeven.deploy.kubernetes import kubernetes_manifest

    described = container(prepared.record, prepared.relaunch, start_timeout_s=prepared.plan.start_timeout_s)
    wanted = {"compose": (compose, compose_file), "kubernetes": (kubernetes, kubernetes_manifest)}
    texts = {kind: (path, text_of(described)) for kind, (path, text_of) in wanted.items() if path is not None}
    paths = write_new(list(texts.values()))
    written = {kind: str(path) for kind, path in zip(texts, paths, strict=True)}
    if as_json:
        told = {"why": prepared.choice.why, "notes": prepared.choice.notes, "warnings": prepared.warnings}
        typer.echo(json.dumps({"arm": prepared.choice.arm.name, **told, "written": written}, indent=2))
        return
    print_result(f"{prepared.choice.why}.")
    for note in (*(f"{note}." for note in prepared.choice.notes), *(f"Warning: {warning}" for warning in prepared.warnings)):
        print_result(note)
    for path in written.values():
        print_result(f"{path}: written; its first lines say what to check before it is used")
