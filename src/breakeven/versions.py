"""Release numbers of engines, and tables of facts that hold between two releases.

A fact that differs by release is a row with `first`, `last` and `checked_to`, never a branch. A release that lies between two rows
was never read: both neighbours are possible. A release newer than `checked_to` gets the last row's fact, marked unverified.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

__all__ = ["Applicable", "Span", "Version", "rows_for"]

_PATTERN = re.compile(
    r"v?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[.-]?(?P<stage>dev|a|b|rc|post)[.-]?(?P<number>\d*))?"
    r"(?:[.-]?dev\d+)?(?:[+-].*)?",
    re.IGNORECASE,
)
_STAGES = {"dev": -4, "a": -3, "b": -2, "rc": -1, "post": 1}


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """A release that can be compared: `0.5.3.post3` < `0.5.4rc1` < `0.5.4`. Local parts (`+cu128`) do not count."""

    release: tuple[int, ...]
    stage: tuple[int, int] = (0, 0)
    text: str = field(default="", compare=False)

    @classmethod
    def parse(cls, text: str) -> Version:
        """Raises ValueError where `text` is not a release number (a branch name, "latest", a commit)."""
        match = _PATTERN.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is not a release number such as 0.5.10 or 0.5.3.post3")
        numbers = [int(part) for part in match["release"].split(".")]
        while len(numbers) > 1 and numbers[-1] == 0:
            numbers.pop()
        stage = (_STAGES[match["stage"].lower()], int(match["number"] or 0)) if match["stage"] else (0, 0)
        return cls(tuple(numbers), stage, text.strip().removeprefix("v"))

    def __str__(self) -> str:
        return self.text or ".".join(map(str, self.release))


@dataclass(frozen=True, slots=True)
class Span:
    """Releases from `first` to `last`, both included; None leaves that end open. `checked_to` is the newest one really read,
    None where the release that was read is not on record."""

    first: Version | None
    last: Version | None
    checked_to: Version | None

    @classmethod
    def of(cls, first: str | None, last: str | None, checked_to: str | None = None) -> Span:
        newest = checked_to or last
        return cls(*(Version.parse(text) if text else None for text in (first, last, newest)))

    def __contains__(self, version: Version) -> bool:
        return (self.first is None or self.first <= version) and (self.last is None or version <= self.last)

    def __str__(self) -> str:
        if self.first is None and self.last is None:
            return f"up to {self.checked_to}" if self.checked_to else "(releases not recorded)"
        if self.first is None:
            return f"up to {self.last}"
        if self.last is None:
            return f"{self.first} and later"
        return f"{self.first} to {self.last}" if self.first != self.last else str(self.first)

    def from_release(self, first: Version) -> Span | None:
        """The part of the span that starts at `first`; None where nothing is left."""
        if self.last is not None and self.last < first:
            return None
        return self if self.first is not None and self.first >= first else Span(first, self.last, self.checked_to)


class _Dated(Protocol):
    @property
    def span(self) -> Span: ...


Row = TypeVar("Row", bound=_Dated)


@dataclass(frozen=True, slots=True)
class Applicable(Generic[Row]):
    """The rows that may hold for a release. `doubt` is empty where one checked row holds, else it says why it is uncertain."""

    rows: tuple[Row, ...]
    doubt: str = ""


def rows_for(rows: Iterable[Row], version: Version | None) -> Applicable[Row]:
    """Rows of one fact that may hold for `version`: one when known, the neighbours in a gap, all of them without a version."""
    ordered = tuple(rows)
    if version is None:
        return Applicable(ordered, "the release is not known")
    holding = tuple(row for row in ordered if version in row.span)
    if holding:
        newest = max((row.span.checked_to for row in holding if row.span.checked_to is not None), default=None)
        if newest is None:
            return Applicable(holding, "checked once, in a release that is not on record: unverified")
        doubt = f"release {version} is newer than {newest}, the last one checked: unverified" if version > newest else ""
        return Applicable(holding, doubt)
    below = [row for row in ordered if row.span.last is not None and row.span.last < version]
    above = [row for row in ordered if row.span.first is not None and row.span.first > version]
    neighbours = (*below[-1:], *above[:1])
    return Applicable(
        neighbours, f"release {version} lies between the checked ones" if neighbours else f"nothing known of {version}"
    )
