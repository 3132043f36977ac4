from __future__ import annotations

import json
from pathlib import Path

import pytest

from breakeven.errors import UsageError
from breakeven.readers.files import Told, read_files
from breakeven.verdict.predicted.acceptance import read_acceptance


def test_shares_by_position() -> None:
    curve, told, _ = read_acceptance("0.83, 0.60,0.45")
    assert curve.joint == (0.83, 0.60, 0.45)
    assert told == "joint acceptance 0.83, 0.6, 0.45"


@pytest.mark.parametrize(
    ("text", "drafts", "length"),
    [
        ("83%,60%,45%", 3, 2.88),
        ("conditional:0.8,0.8,0.8", 3, 2.952),
        ("conditional:80%,50%", 2, 2.2),
        ("3:55%", 3, 2.65),
        ("2:55%,4:40%", 4, 2.6),
        ("55%", 1, 1.55),
    ],
)
def test_percentages_and_conditional_shares(text: str, drafts: int, length: float) -> None:
    curve, told, _ = read_acceptance(text)
    assert curve.num_measured == drafts
    assert curve.length(drafts).value == pytest.approx(length)
    assert told


def test_shares_that_do_not_fall_look_conditional() -> None:
    doubt = read_acceptance("0.8,0.8,0.8").doubt
    assert "accept length 3.40" in doubt
    assert "write conditional:0.8,0.8,0.8 (accept length 2.95)" in doubt
    # zeros after the last accepted position, and everything accepted, are what they are
    assert not read_acceptance("0.2,0,0").doubt
    assert not read_acceptance("1,1,1").doubt
    assert "write K:60%" in read_acceptance("60%").doubt, "one rate may be that of all drafts together"


def test_one_length_says_that_fewer_drafts_are_an_assumption() -> None:
    assert "as if every position lost alike" in read_acceptance("3:2.8")[1]
    assert "alike" not in read_acceptance("2:2.36,3:2.79")[1]


def test_accept_lengths_by_number_of_drafts() -> None:
    curve, *_ = read_acceptance("2:2.36,3:2.79")
    assert curve.length(3).value == pytest.approx(2.79)


def test_the_json_of_an_evaluation(tmp_path: Path) -> None:
    figures = {"num_rounds": 500, "joint": [0.7, 0.4], "accept_length_low": 2.02, "accept_length_high": 2.18}
    path = tmp_path / "eval.json"
    path.write_text(json.dumps({"schema_version": 1, "overall": {**figures, "joint": [0.9, 0.8]}, "without_loops": figures}))
    curve, told, _ = read_acceptance(str(path))
    assert curve.joint == (0.7, 0.4)  # answers that repeat themselves flatter
    assert curve.length(2).high - curve.length(2).value == pytest.approx(0.08)
    assert told == "eval.json: accept length 2.10 at k=2"


def test_the_json_of_a_reading(tmp_path: Path) -> None:
    path = tmp_path / "read.json"
    path.write_text(json.dumps({"readings": [{"acceptance": {"uncertainty": 0.1, "num_drafted": 2, "joint": [0.5, 0.25]}}]}))
    curve, *_ = read_acceptance(str(path))
    assert curve.joint == (0.5, 0.25)
    assert curve.length(2).high == pytest.approx(1.85)


def test_a_reading_without_positions_is_a_chain(tmp_path: Path) -> None:
    path = tmp_path / "read.json"
    path.write_text(json.dumps({"readings": [{"acceptance": {"accept_length": 1.68, "num_drafted": 3, "joint": []}}]}))
    curve, told, _ = read_acceptance(str(path))
    assert told == "read.json: accept length 1.68 at k=3"
    assert curve.conditional == pytest.approx((curve.joint[0],) * 3)


def test_a_real_reading_is_taken(tmp_path: Path) -> None:
    log = Path(__file__).parents[2] / "readers" / "recorded" / "sglang-0.5.12.log"
    path = tmp_path / "read.json"
    path.write_text(read_files([log], Told()).model_dump_json(), encoding="utf-8")
    curve, told, _ = read_acceptance(str(path))
    assert curve.num_measured >= 1
    assert "accept length" in told


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2.4", "needs its number of drafts"),
        ("0.5,0.7", "cannot rise"),
        ("3:5.0", "expected 1 to 4"),
        ("3:", "not a number"),
        ("999999:2.0", "at most 128 drafts"),
        ("good", "expected shares by position"),
        ("", "expected shares by position"),
        ("missing.json", "cannot be read"),
    ],
)
def test_what_is_wrong_is_said_with_the_forms(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_acceptance(text)


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe", b"[" * 100_000, b"{}", b'{"joint": []}', b'{"joint": ["x"]}', b'{"joint": [2.0]}', b'{"joint": [null]}'],
)
def test_hostile_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(UsageError):
        read_acceptance(str(path))


@pytest.mark.parametrize(
    ("text", "half_width"),
    [
        ("3:2.20", 0.005),
        ("3:2.2", 0.05),
        ("3:55%", 0.015),
        ("0.83,0.60,0.45", 0.005 * 3**0.5),
        ("83%,60%,45%", 0.005 * 3**0.5),
        ("1,1,0", 0.0),
        # the first share carries the others: AL = 1 + a + a b
        ("conditional:0.8,0.5", ((1.5 * 0.05) ** 2 + (0.8 * 0.05) ** 2) ** 0.5),
    ],
)
def test_what_digits_leave_open_is_open(text: str, half_width: float) -> None:
    curve = read_acceptance(text).curve
    length = curve.length(curve.num_measured)
    assert length.value - length.low == pytest.approx(half_width)


def test_one_figure_for_each_number_of_drafts() -> None:
    with pytest.raises(UsageError, match="3 drafts stand there twice"):
        read_acceptance("3:2.2,3:2.9")
