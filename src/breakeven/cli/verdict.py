"""`breakeven verdict PATH`: judge a run, or figures that somebody reported (a table)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["verdict"]


def verdict(
    path: Annotated[
        Path,
        typer.Argument(help="A run folder, a table of reported figures (.yaml, .json, .csv or .md), or a result saved as .json."),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON (docs/result-schema.md).")] = False,
) -> None:
    """Does speculation pay, by these figures? Says what follows from them, what does not, and what to measure next."""
    from rich.console import Console

    from breakeven.cli.results import read_result
    from breakeven.report.terminal import render_terminal

    result = read_result(path)
    if as_json:
        typer.echo(result.model_dump_json(indent=2))
    else:
        render_terminal(result, Console())
