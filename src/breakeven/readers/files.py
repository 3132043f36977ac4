"""Files of any kind to one result: each is recognised as a log or a metrics dump by what is in it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from breakeven.errors import UsageError
from breakeven.findings import Finding
from breakeven.readers.benchmark_output import rows_of_benchmarks
from breakeven.readers.compare import compare, sequence_findings
from breakeven.readers.dumps import Scrape, in_order, is_dump, scrapes, window
from breakeven.readers.figures import log_reading
from breakeven.readers.formula import Formula, infer_formula
from breakeven.readers.metrics.reading import window_reading
from breakeven.readers.reading import Reading, ReadResult
from breakeven.readers.replies import MAX_BYTES as MAX_REPLY_BYTES
from breakeven.readers.replies import are_replies, reply_readings
from breakeven.readers.scan import LogScan
from breakeven.readers.sections import Section
from breakeven.readers.sources import Source, blocks
from breakeven.readers.study import Study, declared_shape, study
from breakeven.versions import Version

__all__ = ["Told", "log_result", "read_files"]

MAX_PARTS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the user says about the server, where the files do not. draft_tokens: as the engine's own flag counts them.
    break_even: the cost of a round in plain steps, which the accept length is held against."""

    version: Version | None = None
    draft_tokens: int | None = None
    separate: bool = False
    break_even: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Log:
    source: Source
    scan: LogScan


def read_files(paths: Sequence[Path | None], told: Told | None = None) -> ReadResult:
    """Logs each on its own, then compared with the first; dumps differenced in their order. A path of None is standard input.

    Raises:
        UsageError: a file cannot be read, or nothing in it is known.
    """
    told = told or Told()
    logs: list[_Log] = []
    dumps: list[tuple[Source, list[Scrape]]] = []
    replies: list[Reading] = []
    for path in paths:
        source = Source(name=path.name if path is not None else "standard input", path=path)
        stream = blocks(source)
        head = next(stream, b"")
        whole = itertools.chain([head], stream)
        if is_dump(head):
            dumps.append((source, scrapes(whole)))
        elif are_replies(head):
            replies += reply_readings(b"".join(_at_most(whole, MAX_REPLY_BYTES)), source.name, break_even=told.break_even)
        else:
            logs.append(_Log(source=source, scan=_scanned(whole)))
    readings, studies = _read_logs(logs, told)
    if not readings and not dumps and not replies:
        raise UsageError(_nothing_found([log.source for log in logs]))
    readings += [*_read_dumps(dumps, told), *replies]
    comparisons = [compare(studies[0], other) for other in studies[1:]]
    findings = (*_source_findings([log.source for log in logs] + [s for s, _ in dumps], logs), *sequence_findings(studies))
    return ReadResult(readings=tuple(readings), comparisons=tuple(comparisons), findings=findings)


def log_result(sections: Sequence[Section], source: Source, told: Told) -> ReadResult:
    """What the sections of one log say, which may still be growing."""
    readings, _ = _read_sections(sections, source.name, told)
    return ReadResult(readings=tuple(readings))


def _at_most(stream: Iterator[bytes], limit: int) -> Iterator[bytes]:
    """Blocks until one goes beyond the limit, which the reader then refuses by size."""
    taken = 0
    for block in stream:
        yield block
        taken += len(block)
        if taken > limit:
            return


def _scanned(stream: Iterator[bytes]) -> LogScan:
    scan = LogScan()
    for block in stream:
        scan.feed(block)
    return scan


def _read_logs(logs: Sequence[_Log], told: Told) -> tuple[list[Reading], list[tuple[str, Study]]]:
    readings: list[Reading] = []
    studies: list[tuple[str, Study]] = []
    found_in = [log.scan.finish()[:MAX_PARTS] for log in logs]
    company = _company([section for sections in found_in for section in sections])
    for log, sections in zip(logs, found_in, strict=True):
        found, studied = _read_sections(sections, log.source.name, told, company)
        readings += found
        studies += studied
    return readings, studies


def _company(sections: Sequence[Section]) -> Formula | None:
    """One formula for all logs that do not name their release, where only one fits all of their pairs."""
    unnamed = [section for section in sections if section.version is None and section.pairs]
    if len(unnamed) < 2 or len({(section.engine, declared_shape(section)) for section in unnamed}) > 1:
        return None
    pairs: Counter[tuple[bytes, bytes]] = Counter()
    for section in unnamed:
        pairs.update(section.pairs)
    formula = infer_formula(unnamed[0].engine, None, declared_shape(unnamed[0]), pairs)
    return formula if formula.status == "inferred" else None


def _read_sections(
    sections: Sequence[Section], source: str, told: Told, company: Formula | None = None
) -> tuple[list[Reading], list[tuple[str, Study]]]:
    readings, studies = [], []
    for part, section in enumerate(sections, 1):
        _tell(section, told)
        one = study(section, company=company)
        studies.append((source if len(sections) == 1 else f"{source}, part {part}", one))
        readings.append(log_reading(one, source, part, break_even=told.break_even))
    return readings, studies


def _tell(section: Section, told: Told) -> None:
    """What the user says stands where the log says nothing of its own."""
    if section.version is None and told.version is not None:
        section.version, section.version_line = told.version, "given on the command line"
    if told.draft_tokens is not None:
        name = "speculative_num_draft_tokens" if section.engine == "sglang" else "num_speculative_tokens"
        section.settings.setdefault(name, str(told.draft_tokens))


def _read_dumps(dumps: Sequence[tuple[Source, list[Scrape]]], told: Told) -> list[Reading]:
    readings: list[Reading] = []
    if told.separate or len({scrape.engine for _, found in dumps for scrape in found}) > 1:
        groups = [(source.name, found) for source, found in dumps]
    else:
        names = " and ".join(source.name for source, _ in dumps)
        groups = [(names, [scrape for _, found in dumps for scrape in found])] if dumps else []
    for name, found in groups:
        usable = [scrape for scrape in found if scrape.engine]
        if not usable:
            raise UsageError(f"{name}: a metrics dump without one sample of vLLM, SGLang or llama.cpp: is this the right port?")
        ordered, turned = in_order(usable)
        windows = [window(None, ordered[0])] if len(ordered) == 1 else [window(a, b) for a, b in itertools.pairwise(ordered)]
        for place, one in enumerate(windows, 1):
            reading = window_reading(one, name, told.version, told.draft_tokens, break_even=told.break_even)
            if turned:
                reading = reading.model_copy(update={"findings": (*reading.findings, _turned_round())})
            readings.append(reading.model_copy(update={"part": place}))
    return readings


def _turned_round() -> Finding:
    return Finding(
        code="scrapes-turned-round",
        severity="info",
        confidence="high",
        title="The scrapes were given newest first; they were put in order.",
        evidence=("stamps, or every counter of the same process lower in the second file",),
    )


def _source_findings(sources: Sequence[Source], logs: Sequence[_Log]) -> Iterator[Finding]:
    for source in sources:
        told = [
            *source.notes,
            *([f"{source.num_long_lines} lines of more than 64 kB were skipped"] if source.num_long_lines else []),
        ]
        if told:
            yield Finding(
                code="file-damaged",
                severity="warning",
                confidence="high",
                title=f"{source.name}: not all of it could be read.",
                evidence=tuple(told),
                remedy="The figures are of what could be read.",
            )
    quoted = sum(log.scan.num_quoted for log in logs)
    if quoted:
        yield Finding(
            code="lines-inside-other-text",
            severity="info",
            confidence="high",
            title=f"{quoted} pieces of text look like an engine's lines but stand inside other text; they are left out.",
            evidence=("requests that are logged with their prompts may hold anything",),
        )


def _nothing_found(sources: Sequence[Source]) -> str:
    names = ", ".join(source.name for source in sources)
    if rows := rows_of_benchmarks(sources):
        return f"{names}: {rows}"
    size = sum(source.num_bytes for source in sources)
    notes = "; ".join(note for source in sources for note in source.notes)
    return (
        f"{names}: no line of vLLM, SGLang or llama.cpp that reports decoding in {size} "
        f"bytes{f' ({notes})' if notes else ''}; expected "
        'SGLang\'s "Decode batch", vLLM\'s "Avg generation throughput" or "SpecDecoding metrics", llama.cpp\'s "draft acceptance", '
        "or a dump of /metrics. vLLM prints them every 10 s unless --disable-log-stats is given, SGLang every 40 steps. "
        "For the log of a server that did not start: breakeven doctor --log FILE"
    )
