"""The summary that `vllm bench serve` and SGLang's bench_serving print. No log, but the row of a reported table lies in it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from breakeven.readers.sources import Source

__all__ = ["rows_of_benchmarks"]

_TITLE = re.compile(r"=+ (?:Serving|Benchmark)[A-Za-z ]{0,40}Result =+")
_NUMBER = r": +(\d{1,12}(?:\.\d{1,6})?)\s*$"
# key of a table and the label that both tools, or one of them, print
_FIGURES = {
    "concurrency": re.compile(r"(?m)^Max(?:imum)? request concurrency" + _NUMBER),
    "throughput_tok_s": re.compile(r"(?m)^Output token throughput \(tok/s\)" + _NUMBER),
    "tpot_ms": re.compile(r"(?m)^Mean TPOT \(ms\)" + _NUMBER),
    "accept_length": re.compile(r"(?m)^Accept(?:ance)? length" + _NUMBER),
}
_REQUESTS = re.compile(r"(?m)^Successful requests" + _NUMBER)
_GENERATED = re.compile(r"(?m)^Total generated tokens" + _NUMBER)
_MAX_BYTES = 1_000_000
_MAX_SHOWN = 8


def rows_of_benchmarks(sources: Sequence[Source]) -> str:
    """Rows for a reported table, one a summary, as the end of a message; empty where there is no summary in these files."""
    rows = [row for source in sources for row in _rows(_beginning(source))]
    if not rows:
        return ""
    shown = "".join(f"\n  - {{arm: NAME, {row}}}" for row in rows[:_MAX_SHOWN])
    left_out = f"\n  and {len(rows) - _MAX_SHOWN} more" if len(rows) > _MAX_SHOWN else ""
    return (
        "the summary of a serving benchmark, not a log. Its rows for a table of reported figures (breakeven verdict TABLE.yaml; "
        f"name the arms and say how each drafts):{shown}{left_out}\n"
        "ITL is left out: with speculation it is the time between chunks. SGLang's accept length is of all since its start."
    )


def _beginning(source: Source) -> str:
    if source.path is None or not source.path.is_file():
        return ""  # a pipe was read to its end already
    try:
        with source.path.open("rb") as file:
            return file.read(_MAX_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _rows(text: str) -> list[str]:
    summaries = (_row(summary) for summary in _TITLE.split(text)[1:])
    return [row for row in summaries if row]


def _row(summary: str) -> str:
    found = {key: match[1] for key, pattern in _FIGURES.items() if (match := pattern.search(summary))}
    requests, generated = _REQUESTS.search(summary), _GENERATED.search(summary)
    if requests and generated and float(requests[1]) > 0:
        found["output_tokens"] = f"{float(generated[1]) / float(requests[1]):.0f}"
    return ", ".join(f"{key}: {value}" for key, value in found.items())
