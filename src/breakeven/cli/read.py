"""`breakeven read FILE...`: what server logs and metrics dumps say about speculation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from breakeven.readers.files import Told

__all__ = ["EPILOG", "EXAMPLE", "read"]

EXAMPLE = "breakeven read server.log"
EPILOG = f"Example: {EXAMPLE}  |  before.prom after.prom  |  a.log.gz b.log  |  kubectl logs POD | breakeven read -"


def read(
    files: Annotated[
        list[str],
        typer.Argument(
            help="Logs of vLLM, SGLang or llama.cpp, or dumps of their /metrics; plain or gzipped; - is standard input."
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON (docs/read.md).")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Go on reading one log while a server writes it.")] = False,
    engine_version: Annotated[
        str | None, typer.Option(help="Release of the engine, where the log does not name it, such as 0.5.9.")
    ] = None,
    draft_tokens: Annotated[
        int | None,
        typer.Option(min=1, max=512, help="Draft tokens as the engine's own flag counts them, where the log does not say."),
    ] = None,
    break_even: Annotated[
        float | None,
        typer.Option(min=1.0, help="Cost of a round in plain steps at your load: says what the accept length is worth."),
    ] = None,
    separate: Annotated[bool, typer.Option("--separate", help="Dumps are of different servers: do not take differences.")] = False,
) -> None:
    """Accept length, true draft acceptance, load and speed from server logs and metrics, with what is odd about them."""
    from rich.console import Console

    from breakeven.errors import UsageError
    from breakeven.readers.files import Told, read_files
    from breakeven.report.readings import render_readings
    from breakeven.versions import Version

    try:
        version = Version.parse(engine_version) if engine_version else None
    except ValueError as error:
        raise UsageError(f"--engine-version: {error}") from error
    told = Told(version=version, draft_tokens=draft_tokens, separate=separate, break_even=break_even)
    paths = [None if name == "-" else Path(name) for name in files]
    if follow:
        _follow(paths, told, as_json=as_json)
        return
    result = read_files(paths, told)
    if as_json:
        typer.echo(result.model_dump_json(indent=2))
    else:
        render_readings(result, Console())


def _follow(paths: list[Path | None], told: Told, *, as_json: bool) -> None:
    """A line whenever something new was printed; the whole reading when interrupted."""
    from rich.console import Console

    from breakeven.errors import UsageError
    from breakeven.readers.files import log_result
    from breakeven.readers.scan import LogScan
    from breakeven.readers.sources import Source, blocks
    from breakeven.report.readings import render_readings, status_line

    if len(paths) != 1:
        raise UsageError(f"--follow reads one log, {len(paths)} are given")
    path = paths[0]
    source = Source(name=path.name if path is not None else "standard input", path=path)
    scan, shown = LogScan(), 0
    try:
        for block in blocks(source, follow=True):
            scan.feed(block)
            if (not block or path is None) and scan.num_intervals > shown:
                shown = scan.num_intervals
                reading = log_result(scan.so_far(), source, told).readings[-1]
                typer.echo(reading.model_dump_json() if as_json else status_line(reading))
    except KeyboardInterrupt:
        pass
    result = log_result(scan.finish(), source, told)
    if as_json:
        typer.echo(result.model_dump_json())
    else:
        render_readings(result, Console())
