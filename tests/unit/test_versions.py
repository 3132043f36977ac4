from __future__ import annotations

from dataclasses import dataclass

import pytest

from breakeven.versions import Span, Version, rows_for


@dataclass(frozen=True)
class Fact:
    span: Span
    value: str


FACTS = (
    Fact(Span.of(None, "0.5.3"), "a"),
    Fact(Span.of("0.5.3.post3", "0.5.5"), "b"),
    Fact(Span.of("0.5.11", None, "0.5.23"), "c"),
)


def test_order_of_releases() -> None:
    texts = [
        "0.5.3",
        "0.5.3.post1",
        "0.5.3.post3",
        "0.5.4rc1",
        "0.5.4",
        "0.5.10.dev2",
        "0.5.10",
        "0.5.10.post1",
        "0.33",
        "v1.0+cu128",
    ]
    versions = [Version.parse(text) for text in texts]
    assert versions == sorted(versions)
    assert len(set(versions)) == len(texts)


@pytest.mark.parametrize(("one", "other"), [("0.33", "0.33.0"), ("v0.5.9", "0.5.9"), ("0.9.2+cu128", "0.9.2")])
def test_same_release(one: str, other: str) -> None:
    assert Version.parse(one) == Version.parse(other)


@pytest.mark.parametrize("text", ["main", "latest", "a1b2c3d", "", "0.5.x"])
def test_not_a_release(text: str) -> None:
    with pytest.raises(ValueError, match="not a release number"):
        Version.parse(text)


@pytest.mark.parametrize(
    ("version", "values", "doubt"),
    [
        ("0.4.1", "a", ""),
        ("0.5.3", "a", ""),
        ("0.5.3.post1", "ab", "between"),
        ("0.5.4", "b", ""),
        ("0.5.8", "bc", "between"),
        ("0.5.23", "c", ""),
        ("0.6.0", "c", "unverified"),
    ],
)
def test_known_between_and_beyond(version: str, values: str, doubt: str) -> None:
    found = rows_for(FACTS, Version.parse(version))
    assert "".join(fact.value for fact in found.rows) == values
    assert doubt in found.doubt
    assert bool(found.doubt) == bool(doubt)


def test_without_a_release_every_row_is_possible() -> None:
    assert len(rows_for(FACTS, None).rows) == 3


def test_span_from_a_release_on() -> None:
    span = Span.of("0.5.6", "0.5.10.post1")
    assert str(span.from_release(Version.parse("0.5.10"))) == "0.5.10 to 0.5.10.post1"
    assert span.from_release(Version.parse("0.5.11")) is None
    assert span.from_release(Version.parse("0.5.2")) == span
