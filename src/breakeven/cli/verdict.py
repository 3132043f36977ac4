"""`breakeven verdict PATH`: judge figures that somebody reported (a YAML or CSV table)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from breakeven.errors import UsageError
from breakeven.verdict.reported import judge_reported

__all__ = ["verdict"]


def verdict(
    path: Annotated[Path, typer.Argument(help="A table of reported figures (.yaml, .yml or .csv).")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON (docs/result-schema.md).")] = False,
) -> None:
    """Does speculation pay, by these figures? Says what follows from them, what does not, and what to measure next."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder; give the file with the reported figures")
    result = judge_reported(path)
    if as_json:
        typer.echo(result.model_dump_json(indent=2))
        return
    from breakeven.report.terminal import render_terminal

    render_terminal(result, Console())
