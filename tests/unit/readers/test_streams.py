"""Reading as a stream: following, rotation, time stamps, and logs too long to keep line by line."""

from __future__ import annotations

import gzip
import json
import math
import random
from pathlib import Path

import numpy as np
import pytest
from tests.unit.readers.conftest import sgl, vllm, vllm_load
from typer.testing import CliRunner

from breakeven.cli import app
from breakeven.errors import UsageError
from breakeven.readers.clock import Clock
from breakeven.readers.scan import LogScan
from breakeven.readers.series import COLUMNS, Series
from breakeven.readers.sources import Source, blocks


class _Done(Exception):
    pass


def test_following_goes_on_at_the_end_and_over_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(sgl(2.0, 0.5), encoding="utf-8")
    steps = iter(("append", "rotate", "cut", "stop"))

    def wait(_seconds: float) -> None:
        match next(steps):
            case "append":
                with path.open("a", encoding="utf-8") as opened:
                    opened.write(sgl(2.1, 0.5))
            case "rotate":
                path.rename(tmp_path / "server.log.1")
                path.write_text(sgl(2.2, 0.5) * 3, encoding="utf-8")
            case "cut":
                path.write_text(sgl(2.3, 0.5), encoding="utf-8")
            case "stop":
                raise _Done

    scan = LogScan()
    try:
        for block in blocks(Source(name="server.log", path=path), follow=True, wait=wait):
            scan.feed(block)
    except _Done:
        pass
    (section,) = scan.so_far()
    assert list(section.series.table()["length"]) == [2.0, 2.1, 2.2, 2.2, 2.2, 2.3]


def test_following_needs_one_log() -> None:
    done = CliRunner().invoke(app, ["read", "--follow", "a.log", "b.log"])
    assert isinstance(done.exception, UsageError)


def test_an_interval_in_two_lines_is_not_torn_while_following() -> None:
    scan = LogScan()
    scan.feed((vllm_load(284.0) + vllm([0.8, 0.6, 0.4], 1000) + vllm_load(300.0, at_s=10)).encode())
    assert scan.num_intervals == 1
    scan.feed(vllm([0.8, 0.6, 0.4], 900, at_s=10).encode())
    (section,) = scan.finish()
    assert list(section.series.table()["throughput"]) == [284.0, 300.0]
    assert list(section.series.table()["rounds"]) == [1000, 900]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("cut", [1, 7, 100, 1 << 20])
def test_lines_cut_anywhere_are_whole_again(tmp_path: Path, packed: bool, cut: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("breakeven.readers.sources.BLOCK_BYTES", cut)
    monkeypatch.setattr("breakeven.readers.sources.UNPACKED_BYTES", cut)
    text = "".join(sgl(2.0 + i / 100, 0.5, at_s=i) for i in range(30)).encode()
    path = tmp_path / "a.log"
    path.write_bytes(gzip.compress(text) if packed else text)
    scan = LogScan()
    for block in blocks(Source(name="a.log", path=path)):
        assert not block or block.endswith(b"\n") or cut == 1 << 20
        scan.feed(block)
    (section,) = scan.finish()
    assert list(section.series.table()["length"]) == pytest.approx([2.0 + i / 100 for i in range(30)])


def test_the_usual_and_the_general_way_read_the_same() -> None:
    lines = [
        sgl(2.0 + i / 50, 0.25 + i / 150, running=1 + i, queued=i % 3, speed=100.5 + i, at_s=i, rank=" DP1 TP3") for i in range(40)
    ]
    lines += [sgl(None, None, at_s=50 + i) for i in range(3)]
    usual, general = LogScan(), LogScan()
    usual.feed("".join(lines).encode())
    general.feed("".join("[host] " + line for line in lines).encode())  # a prefix that the usual expression does not know
    one, other = usual.finish()[0], general.finish()[0]
    for name in COLUMNS:
        np.testing.assert_array_equal(one.series.table()[name], other.series.table()[name], err_msg=name)
    assert one.pairs == other.pairs
    vllm_text = "".join(
        vllm_load(284.5, i, i % 2, at_s=10 * i, engine=i % 2) + vllm([0.8, 0.6], 1000 + i, at_s=10 * i) for i in range(9)
    )
    usual, general = LogScan(), LogScan()
    usual.feed(vllm_text.encode())
    general.feed(vllm_text.replace("(APIServer", "[host] (APIServer").encode())
    for name in COLUMNS:
        np.testing.assert_array_equal(
            usual.finish()[0].series.table()[name], general.finish()[0].series.table()[name], err_msg=name
        )


def test_a_long_series_is_joined_and_keeps_its_sums_and_weighted_means() -> None:
    rng, series, rows = random.Random(0), Series(capacity=64), []
    for i in range(1000):
        row = dict.fromkeys(COLUMNS, math.nan) | {
            "time_s": float(i),
            "running": float(rng.randrange(1, 9)),
            "length": rng.uniform(1, 4),
            "rounds": float(rng.randrange(1, 500)),
            "accepted": float(rng.randrange(100)),
        }
        rows.append(row)
        series.append(tuple(row.values()))
    table = series.table()
    assert series.grain > 1
    assert len(table["length"]) <= 2 * 64
    assert table["accepted"].sum() == sum(row["accepted"] for row in rows)
    assert table["rounds"].sum() == sum(row["rounds"] for row in rows)
    expected = sum(row["length"] * row["rounds"] for row in rows) / sum(row["rounds"] for row in rows)
    assert np.average(table["length"], weights=table["rounds"]) == pytest.approx(expected)
    assert np.isnan(table["drafted"]).all()
    assert list(table["time_s"]) == sorted(table["time_s"])


def test_stamps() -> None:
    clock = Clock()
    assert clock.read(b"[2026-03-01 00:00:10 TP0] ") - clock.read(b"2026-03-01T00:00:00.500Z stdout F ") == pytest.approx(9.5)
    assert clock.at(b"2026-03-01 00:01", b"05") - clock.read(b"[2026-03-01 00:00:10] ") == 55
    assert clock.read(b"1.02.003.004 I slot ") == pytest.approx(62.003004)
    assert math.isnan(clock.read(b"no stamp "))
    assert math.isnan(clock.read(b"[2026-99-99 99:99:99] "))


def test_a_date_without_a_year_goes_on_into_the_next() -> None:
    clock = Clock()
    before, after = clock.read(b"INFO 12-31 23:59:50 "), clock.read(b"INFO 01-01 00:00:10 ")
    assert after - before == 20


def test_json_is_the_documented_result(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("".join(sgl(2.17, 0.54, at_s=i) for i in range(5)), encoding="utf-8")
    done = CliRunner().invoke(app, ["read", str(path), "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.output)
    assert result["schema_version"] == 1
    assert result["readings"][0]["acceptance"]["num_drafted"] == 3
    assert len(result["readings"][0]["points"]) == 5


def test_every_finding_is_in_the_documentation() -> None:
    import re

    root = Path(__file__).parents[3]
    documented = (root / "docs" / "read.md").read_text(encoding="utf-8")
    sources = "".join(path.read_text(encoding="utf-8") for path in (root / "src/breakeven/readers").rglob("*.py"))
    found = set(re.findall(r'code="([a-z-]+)"', sources)) - {"accept-length-may-fall-with-"}
    assert found
    assert {code for code in found if f"`{code}`" not in documented} == set()
