"""`breakeven report RUN`: a finished or interrupted run, or a saved result, in the form that is wanted."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from breakeven.cli.escaping import print_result

__all__ = ["ReportFormat", "report"]


class ReportFormat(StrEnum):
    HTML = "html"
    MARKDOWN = "markdown"
    JSON = "json"
    CSV = "csv"


def report(
    source: Annotated[Path, typer.Argument(help="A run folder, a result saved as JSON, or a table of reported figures.")],
    form: Annotated[ReportFormat, typer.Option("--format", help="What to write.")] = ReportFormat.HTML,
    out: Annotated[
        Path | None, typer.Option(help="File to write (default: standard output, as -; HTML: report.html beside the source).")
    ] = None,
) -> None:
    """Write what a run or a table of reported figures says, as a page, Markdown, JSON or CSV."""
    from breakeven.cli.results import read_result
    from breakeven.errors import UsageError
    from breakeven.report.html import render_html
    from breakeven.report.markdown import render_markdown
    from breakeven.report.spreadsheet import render_csv
    from breakeven.whole import write_whole

    result = read_result(source)
    match form:
        case ReportFormat.HTML:
            text = render_html(result)
            out = out or (source if source.is_dir() else source.parent) / "report.html"
        case ReportFormat.MARKDOWN:
            text = render_markdown(result)
        case ReportFormat.JSON:
            text = result.model_dump_json(indent=2) + "\n"
        case ReportFormat.CSV:
            text = render_csv(result)
    if out is None or str(out) == "-":
        typer.echo(text, nl=False)
        return
    try:
        write_whole(out, text)
    except OSError as error:
        raise UsageError(f"{out}: cannot be written ({error.strerror}); give another file with --out") from error
    print_result(str(out))
