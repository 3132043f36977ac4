"""Logs into sections. Lines that matter are found by searching whole blocks for their marks, so that the rest costs next to
nothing."""

from __future__ import annotations

import re

from breakeven.readers.clock import Clock
from breakeven.readers.formats import FORMATS
from breakeven.readers.formats.base import Format, LineReader, UsualReader
from breakeven.readers.sections import Section
from breakeven.readers.sources import MAX_LINE_BYTES
from breakeven.versions import Version

__all__ = ["LogScan"]

_ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.?")
# A message is preceded by stamps, levels, ranks and file names. A request that is logged with its text may hold anything, lines of
# this very kind too: quotes and these words give it away.
_PREFIX = re.compile(rb"[^\"'{}]{0,240}")
_JSON_PREFIX = re.compile(rb"\s*\{[^{}]{0,240}\"(?:message|msg|log|MESSAGE|text|event)\"\s*:\s*\"[^\"'{}]{0,240}")
_QUOTED = re.compile(rb"(?i)prompt\b|content|input_text|user:|received request")
_MARKS: dict[bytes, tuple[Format, LineReader]] = {mark: (form, read) for form in FORMATS for mark, read in form.marks.items()}
_BANNERS = frozenset(mark for form in FORMATS for mark in form.banners)
_RELEASE = rb"(\d+\.\d+(?:\.[\w.]*\w)?)"
_VERSIONS = {
    "sglang": re.compile(rb"(?i)\bsglang\W{0,4}(?:server\W{0,4})?(?:(?:version|release)\W{0,4})?v?" + _RELEASE),
    "vllm": re.compile(
        rb"(?i)\b(?:vllm(?:[ -](?:openai|cpu))?\W{0,4}(?:(?:api )?server )?(?:version\W{0,4})?v?|LLM engine \(v)"
        + _RELEASE
        # the banner drawn in block characters
        + rb"|\xe2\x96\x88[^\n]{0,60} version (?:\x1b\[\d*m)?"
        + _RELEASE
    ),
}
# Where a banner may stand: a release named later in a log is as likely part of somebody's text.
_BANNER_BYTES = 4_000_000
_MAX_BANNER_LINE = 20_000
_FORMATS: dict[str, Format] = {form.engine: form for form in FORMATS}


class LogScan:
    """Feed it blocks of whole lines; `sections` holds what was found so far. `num_quoted` counts marks inside other text."""

    def __init__(self) -> None:
        self.sections: list[Section] = []
        self.num_quoted = 0
        self._clock = Clock()
        self._versions: dict[str, tuple[Version, str]] = {}
        self._unsearched_bytes = _BANNER_BYTES

    def feed(self, block: bytes) -> None:
        searched = 0
        for place, mark in _places(block):
            form, read = _MARKS[mark]
            if self._is_starting or mark in _BANNERS:
                end = block.find(b"\n", place)
                self._find_version(block[searched : end if end >= 0 else len(block)])
            searched = place
            usual = form.usual.get(mark)
            if usual is None or not self._usual_line(block, place, form, *usual):
                self._line(block, place, mark, form, read)
        if self._is_starting:
            self._find_version(block[searched:])

    @property
    def num_intervals(self) -> int:
        return sum(section.series.num_appended for section in self.sections)

    def so_far(self) -> list[Section]:
        """As `finish`, while lines are still to come: an interval that waits for its second line is left out."""
        return [section for section in self.sections if not section.is_empty]

    def finish(self) -> list[Section]:
        """The sections that hold at least one interval."""
        for section in self.sections:
            _FORMATS[section.engine].finish(section)
        return self.so_far()

    @property
    def _is_starting(self) -> bool:
        return not self.sections or (self.sections[-1].is_empty and not self.sections[-1].pending)

    def _usual_line(self, block: bytes, place: int, form: Format, pattern: re.Pattern[bytes], read: UsualReader) -> bool:
        """Read the line in one go; False where it, or the section it would go to, is not the usual."""
        section = self.sections[-1] if self.sections else None
        if section is None or section.engine != form.engine:
            return False
        match = pattern.match(block, block.rfind(b"\n", 0, place) + 1)
        if match is None:
            return False
        try:
            read(match, self._clock, section)
        except ValueError:
            return False
        return True

    def _line(self, block: bytes, place: int, mark: bytes, form: Format, read: LineReader) -> None:
        begin = block.rfind(b"\n", 0, place) + 1
        if place - begin > MAX_LINE_BYTES:
            return
        end = block.find(b"\n", place, begin + MAX_LINE_BYTES)
        line, prefix = block[place : end if end >= 0 else begin + MAX_LINE_BYTES], block[begin:place]
        if b"\x1b" in line or b"\x1b" in prefix:
            line, prefix = _ESCAPES.sub(b"", line), _ESCAPES.sub(b"", prefix)
        # a progress bar may have been written over before the message
        prefix = prefix.rpartition(b"\r")[2]
        # llama.cpp's own "prompt eval time =" quotes no prompt
        before = prefix.rstrip().removesuffix(b"prompt") if mark == b"eval time =" else prefix
        if not (_PREFIX.fullmatch(prefix) or _JSON_PREFIX.fullmatch(prefix)) or _QUOTED.search(before):
            self.num_quoted += 1
            return
        section = self._section(form, mark)
        if section is None:
            return
        try:
            read(line.rstrip(b'\r"}'), self._clock.read(prefix), prefix, section)
        except (ValueError, OverflowError):
            section.num_malformed += 1

    def _section(self, form: Format, mark: bytes) -> Section | None:
        """The section that a line belongs to. Intervals of another engine and a banner after intervals begin a new one."""
        current = self.sections[-1] if self.sections else None
        if current is not None and current.engine == form.engine and not (mark in _BANNERS and not self._is_starting):
            return current
        if mark not in _BANNERS and mark not in form.intervals and current is not None:
            return None
        if current is not None:
            _FORMATS[current.engine].finish(current)
        self._unsearched_bytes = _BANNER_BYTES
        section = Section(engine=form.engine)
        if form.engine in self._versions:
            section.version, section.version_line = self._versions[form.engine]
        self.sections.append(section)
        return section

    def _find_version(self, text: bytes) -> None:
        """The release that a start-up line names. Lines that hold somebody's text do not count."""
        if self._unsearched_bytes <= 0:
            return
        text = text[: self._unsearched_bytes]
        self._unsearched_bytes -= len(text)
        for engine, pattern in _VERSIONS.items():
            for match in pattern.finditer(text):
                line = text[text.rfind(b"\n", 0, match.start()) + 1 : match.end() + 80].split(b"\n", 1)[0]
                if len(line) > _MAX_BANNER_LINE or _QUOTED.search(line):
                    continue
                try:
                    found = (
                        Version.parse((match[1] or match[match.lastindex or 1]).decode()),
                        _ESCAPES.sub(b"", line).decode(errors="replace"),
                    )
                except ValueError:
                    continue
                self._versions[engine] = found
                if self.sections and self.sections[-1].engine == engine and self.sections[-1].is_empty:
                    self.sections[-1].version, self.sections[-1].version_line = found
                break


def _places(block: bytes) -> list[tuple[int, bytes]]:
    """Where each mark stands, in order. One pass of the C library's search a mark beats one regular expression for all."""
    found = []
    for mark in _MARKS:
        place = block.find(mark)
        while place >= 0:
            found.append((place, mark))
            place = block.find(mark, place + len(mark))
    found.sort()
    return found
