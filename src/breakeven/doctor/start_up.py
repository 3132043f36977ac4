"""Logs without an interval of decoding: which engine it was, what it was started with, and whether and why it died.

Servers that are well print none either: vLLM needs ten seconds, SGLang forty steps. So what comes after a server said that it was
ready counts only where it tells of the engine's own end, and what comes after it was told to end counts for nothing: processes that
are ended in a row complain about each other.
"""

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
    r"^(?:.{0,200}\s)?(?:Traceback \(most recent call last\):|\w[\w.]*(?:Error|Exception): )|: error: "
    r"|\b(?:sigquit|SIGQUIT|SIGKILL)\b"
)
_READY = re.compile(r"Application startup complete|fired up and ready to roll")
_DIED_SERVING = re.compile(r"EngineDeadError|EngineCore (?:hit|encountered) a|hit an exception|\bsigquit\b", re.IGNORECASE)
_TOLD_TO_END = re.compile(r"SIG(?:TERM|INT) received|received signal=SIG|KeyboardInterrupt|^INFO: +Shutting down")


@dataclass(frozen=True, slots=True, kw_only=True)
class StartUp:
    """`settings`: as `Reading.settings`. `was_ready`: whether it said that it could serve. `died`: whether it shows an end that
    nobody asked for; `why`: its cause in a sentence, if it is known."""

    source: str
    engine: str
    version: str | None
    settings: Mapping[str, str]
    was_ready: bool
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
    end = next((place for place, line in enumerate(lines) if _TOLD_TO_END.search(line)), len(lines))
    ready = max((place for place, line in enumerate(lines) if _READY.search(line)), default=None)
    died = [line for line in lines[ready or 0 : end] if (_DIED if ready is None else _DIED_SERVING).search(line)]
    why = ENGINES[named].explain_failure(lines[ready or 0 :], None) if died else None
    if section is None and not died and ready is None:
        return None
    return StartUp(
        source=path.name,
        engine=named,
        version=str(section.version) if section is not None and section.version is not None else None,
        settings=dict(section.settings) if section is not None else {},
        was_ready=ready is not None,
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
