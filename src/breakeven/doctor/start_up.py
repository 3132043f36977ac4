"""Logs of servers that never decoded: which engine it was, what it was started with, and why it died, as far as the log says."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from breakeven.engines.registry import ENGINES
from breakeven.readers.dumps import is_dump
from breakeven.readers.scan import LogScan
from breakeven.readers.sources import Source, blocks

__all__ = ["StartUp", "start_up"]

# A traceback of many ranks stands in front of the last line.
MAX_TAIL_LINES = 2_000
MAX_SHOWN = 500
_MODULES = {"sglang": re.compile(r"\bsglang[./]"), "vllm": re.compile(r"\bvllm[./]")}
_DIED = re.compile(
    r"^(?:.{0,200}\s)?(?:Traceback \(most recent call last\):|\w[\w.]*(?:Error|Exception): )|: error: |sigquit|SIGKILL"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartUp:
    """`settings`: as `Reading.settings`. `died`: whether it shows an end; `why`: its cause in a sentence, if it is known."""

    source: str
    engine: str
    version: str | None
    settings: Mapping[str, str]
    died: bool
    why: str | None
    last_line: str


def start_up(path: Path, engine: str | None) -> StartUp | None:
    """What a log without one printed interval says; None for a dump of metrics, or where it is no log of a known engine.

    Raises:
        UsageError: the file cannot be read.
    """
    scan, tail = LogScan(), deque[str](maxlen=MAX_TAIL_LINES)
    for place, block in enumerate(blocks(Source(name=path.name, path=path))):
        if not place and is_dump(block):
            return None
        scan.feed(block)
        tail.extend(block.decode("utf-8", "replace").splitlines())
    if scan.finish():
        return None
    section = scan.sections[-1] if scan.sections else None
    lines = list(tail)
    named = section.engine if section is not None else engine or _by_modules(lines)
    if named not in ENGINES:
        return None
    died = [line for line in lines if _DIED.search(line)]
    why = ENGINES[named].explain_failure(lines, None) if died else None
    if section is None and not died:
        return None
    return StartUp(
        source=path.name,
        engine=named,
        version=str(section.version) if section is not None and section.version is not None else None,
        settings=dict(section.settings) if section is not None else {},
        died=bool(died),
        why=_plain(why) if why is not None else None,
        last_line=_plain(next((line for line in reversed(lines) if line.strip()), "")),
    )


def _plain(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text[:MAX_SHOWN]).strip()


def _by_modules(lines: Sequence[str]) -> str | None:
    """The engine whose own files stand in the tracebacks, where only one's do."""
    found = [engine for engine, pattern in _MODULES.items() if any(pattern.search(line) for line in lines)]
    return found[0] if len(found) == 1 else None
