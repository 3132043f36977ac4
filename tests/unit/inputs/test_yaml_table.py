"""Hostile YAML ends at once with one message; every key has its line."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, Field

from breakeven.errors import ReportedError, UsageError
from breakeven.inputs.checking import check_table
from breakeven.inputs.text import read_text
from breakeven.inputs.yaml_table import parse_yaml_table


def parsed(text: str) -> tuple[dict[object, object], dict[tuple[str, ...], int]]:
    content, lines = parse_yaml_table(text, "f.yaml", expected="a table", error=UsageError)
    return content, dict(lines)


def bomb(link: str) -> str:
    """Each line holds the one before ten times: ten billion entries if unfolded."""
    names = "abcdefghijk"
    lines = [f"{new}: &{new} {link.format(', '.join([f'*{old}'] * 10))}\n" for old, new in itertools.pairwise(names)]
    return f"{names[0]}: &{names[0]} {{x: 1}}\n{''.join(lines)}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (bomb("[{}]"), "more than 20000 entries (aliases that repeat each other?); expected a table"),
        (bomb("{{<<: [{}]}}"), "more than 20000 entries"),
        ("a: &a [*a]", "f.yaml: nested deeper than 50 (an alias inside what it stands for?); expected a table"),
        ("a: " + "[" * 60 + "]" * 60, "nested deeper than 50"),
        ("[" * 50_000, "not valid YAML"),
        ("a: 1\nb: 2\na: 3", "f.yaml:3: key 'a' stands on line 1 too; expected it once"),
        ('a: 1\nb: ["x\\0y"]', "f.yaml:2: 'x\\x00y' holds a character that no file, command or report can have"),
        ('a: 1\n"\\uD800": x', "f.yaml:2: '\\ud800' holds a character"),
        ("a:\n\t- 1", "f.yaml:2: not valid YAML at column 1"),
        ("!!python/object/apply:os.system [id]", "f.yaml:1: not valid YAML"),
        ("a: !!int x", "f.yaml: not valid YAML (ValueError"),
        (f"a: 0x{'f' * 5000}", "f.yaml:1: not valid YAML at column 4 (a number of 5002 characters)"),
        (f"a: 1\nb: 1{':1' * 50_000}", "f.yaml:2: not valid YAML at column 4 (a number of 100001 characters)"),
        (f"a: 1{':1' * 300}.5", "a number of 603 characters"),
        (f"a: !!float 1{':1' * 300}", "a number of 601 characters"),
        (f"a: {'9' * 5000}", "a number of 5000 characters"),
        ("? [a]\n: 1", "f.yaml:1: a list or table stands where a key is expected"),
        (bomb("[{}]") + "? *k\n: 1", "a list or table stands where a key is expected"),
        ("a: 1\n---\nb: 2", "f.yaml:2: not valid YAML"),
        ("- a", "f.yaml: holds a list; expected a table"),
        ("", "f.yaml: holds nothing; expected a table"),
        ("x" * 1000, "f.yaml: holds 'xxx"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    began_s = time.process_time()
    with pytest.raises(UsageError) as caught:
        parsed(text)
    assert str(caught.value).startswith("f.yaml:")
    assert message in str(caught.value)
    assert len(str(caught.value)) < 400
    assert time.process_time() - began_s < 10.0


def test_keys_and_items_have_lines_and_merged_keys_too() -> None:
    content, lines = parsed("a: &shared\n  b: 1\nc:\n  <<: *shared\n  d: [1,\n    2]\n1: x\n")
    assert content == {"a": {"b": 1}, "c": {"b": 1, "d": [1, 2]}, 1: "x"}
    assert {path: lines[path] for path in [("a", "b"), ("c", "b"), ("c", "d", "1"), ("1",)]} == {
        ("a", "b"): 2,
        ("c", "b"): 2,
        ("c", "d", "1"): 6,
        ("1",): 7,
    }


def test_text_is_read_within_bounds(tmp_path: Path) -> None:
    def read(path: Path) -> str:
        return read_text(path, max_bytes=1000, expected="a note", error=ReportedError, option="--note")

    file = tmp_path / "f"
    file.write_bytes(b"\xef\xbb\xbfcaf\xc3\xa9")
    assert read(file) == "caf\u00e9"
    for content, message in ((b"x" * 1001, "larger than 1 kB"), (b"ab\xff", "byte 2 is not UTF-8")):
        file.write_bytes(content)
        with pytest.raises(ReportedError) as caught:
            read(file)
        assert str(caught.value) == f"--note {file}: {message}; expected a note"
    for path in (tmp_path, tmp_path / "absent", Path("/dev/zero")):
        with pytest.raises(ReportedError, match=r"^--note .*; expected a note$"):
            read(path)


def test_numbers_with_exponents_are_numbers() -> None:
    content, _ = parsed("a: 1e-3\nb: 5E+2\nc: -.5e1\nd: 1.0e30\ne: 1e3x\nf: '1e3'\ng: e3\nh: 1.\n")
    assert content == {"a": 0.001, "b": 500.0, "c": -5.0, "d": 1e30, "e": "1e3x", "f": "1e3", "g": "e3", "h": 1.0}


def test_an_entry_that_is_refused_does_not_make_its_list_empty_and_a_key_that_is_no_word_is_named() -> None:
    class Item(BaseModel):
        count: int = Field(ge=1)

    class Table(BaseModel):
        model_config = ConfigDict(extra="forbid")
        items: tuple[Item, ...] = Field(min_length=1)

    def complaint(text: str) -> str:
        content, lines = parsed(text)
        with pytest.raises(UsageError) as caught:
            check_table(Table, content, lines, "f.yaml", whole="the table", error=UsageError)
        return str(caught.value)

    assert complaint("items: [{count: 0}]") == "f.yaml:1: items.0.count is 0; expected greater than or equal to 1"
    assert complaint("items: []") == "f.yaml:1: items is empty; expected at least one entry"
    assert "f.yaml: a key is True, which is no word; put yes, no" in complaint("items: [{count: 1}]\nyes: 1")
