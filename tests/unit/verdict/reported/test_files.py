"""What is refused in a reported table, and in which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from breakeven.errors import ReportedError
from breakeven.verdict.reported import judge_reported
from breakeven.verdict.reported.files import MAX_BYTES, MAX_ROWS, load_table


def refusal(tmp_path: Path, text: str | bytes, name: str = "table.yaml") -> str:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ReportedError) as caught:
        judge_reported(path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("{arm: a, accept_len: 1.5}", ["row 1 (a)", "'accept_len' is not a key here; did you mean 'accept_length'?"]),
        ("{arm: a, troughput_tok_s: 3}", ["did you mean 'throughput_tok_s'?"]),
        ("{arm: a, output_tokens_per_s: 95}", ["did you mean 'throughput_tok_s', output tokens/s of the whole server"]),
        ("{arm: a, tok/s: 95}", ["did you mean 'throughput_tok_s'"]),
        ("{arm: a, tps_per_user: 95}", ["did you mean 'request_speed_tok_s', output tokens/s of one request"]),
        ("{arm: a, singel_stream_tok_s: 95}", ["did you mean 'single_stream_tok_s'?"]),
        ("{arm: a, output_token: 95}", ["did you mean 'output_tokens'?"]),
        ("{arm: a, drafts: 3}", ["did you mean 'draft_tokens'?"]),
        ("{arm: a, tp: 8}", ["did you mean 'tensor_parallel'?"]),
        ("{arm: a, speculative_num_draft_tokens: 4}", ["did you mean 'draft_tokens'?"]),
        ("{arm: a, xyzzy: 4}", ["known:", "accept_length"]),
        ("{arm: a, points: [{concurency: 4}]}", ["row 1 (a), point 1", "did you mean 'concurrency'?"]),
        ("{arm: a, throughput_tok_s: -5}", ["throughput_tok_s: '-5' is negative"]),
        ("{arm: a, throughput_tok_s: 0}", ["must be a plain number above 0"]),
        ("{arm: a, throughput_tok_s: fast}", ["'fast' is not a number"]),
        ("{arm: a, throughput_tok_s: '1,234'}", ["has a comma"]),
        ("{arm: a, throughput_tok_s: '1,234'}", ["has a comma that may stand before thousands or before decimals"]),
        ("{arm: a, peak_tok_s: .nan}", ["not a finite number"]),
        ("{arm: a, accept_length: 42 %}", ["Is it the accept_rate?"]),
        ("{arm: a, accept_rate: 1.4}", ["write 0.42 or 42 %"]),
        ("{arm: a, accept_rate: 250}", ["neither a share"]),
        ("{arm: a, drafted_share: 3}", ["between 0 and 1"]),
        ("{arm: a, topk: 1.5}", ["not a whole number"]),
        ("{arm: a, concurrency: 0}", ["must be 1 or more"]),
        ("{arm: a, concurrency: 16-64}", ["'16-64' is not a number"]),
        ("{arm: a, max_running_requests: lots}", ["'default' (flag not given)"]),
        ("{arm: a, figures_from: slides}", ["'log', 'per request' or 'benchmark'"]),
        ("{arm: [a], engine: {b: c}}", ["not a list", "not a mapping"]),
        ("3", ["row 1: must be a mapping"]),
    ],
)
def test_row_refused(tmp_path: Path, row: str, words: list[str]) -> None:
    message = refusal(tmp_path, f"rows:\n  - {row}\n")
    for word in words:
        assert word in message
    assert "at least one row" not in message


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("t.yaml", "hello", "a key 'rows'"),
        ("t.yaml", "", "a key 'rows'"),
        ("t.yaml", "rows: []", "at least one row"),
        ("t.yaml", "name: x", "'rows' is missing"),
        ("t.yaml", "arms: []\nrows: []", "did you mean 'rows'?"),
        ("t.yaml", "rows: [", "line"),
        ("t.yaml", "rows: &a\n  - *a\n", "anchors and aliases"),
        ("t.yaml", "rows:\n  - arm: x\n    arm: y\n", "'arm' is given twice"),
        ("t.yaml", "rows: " + "[" * 1200, "nested too deeply"),
        ("t.yaml", "threshold: 3\nrows: [{arm: a}]", "threshold"),
        ("t.csv", "", "a line of column names"),
        ("t.csv", "arm,engine\n", "at least one row"),
        ("t.csv", "arm,arm\na,b\n", "column arm is given twice"),
        ("t.csv", "arm,engine\na,b,c\n", "row 1: 3 cells, but 2 columns"),
        ("t.csv", 'arm,engine\n"a,b\n', "line"),
        ("t.csv", "arm,target\na,X\nb,Y\n", "one table is about one target"),
        ("t.csv", "arm,engine\na\x1b[31m,b\n", "control characters"),
        ("t.csv", "arm\n" + "a\n" * (MAX_ROWS + 1), f"{MAX_ROWS + 1} rows; at most {MAX_ROWS}"),
        ("t.yaml", "rows:\n" + "- 1\n" * (MAX_ROWS + 1), f"{MAX_ROWS + 1} rows; at most {MAX_ROWS}"),
        ("t.yaml", "#" * (MAX_BYTES + 1), "larger than 500 kB"),
        ("t.csv", b"\xff\xfe", "UTF-8"),
        ("t.txt", "rows: []", ".yaml, .yml, .json, .csv or .md"),
        (
            "t.csv",
            "arm,engine,concurrency,throughput_tok_s\na,x,4,100\na,x,4,120\n",
            "two figures for throughput at c=4 (100 and 120)",
        ),
        ("t.csv", "arm,engine,concurrency,input_tokens\na,x,4,100\na,x,4,120\n", "two figures for input tokens at c=4"),
        ("t.csv", "arm,engine,concurrency,temperature\na,x,4,0\na,x,4,1\n", "two settings of temperature at c=4 (0 and 1)"),
        ("t.csv", "arm,engine,concurrency,throughput_tok_s\na,x,4,100\na,y,8,120\n", "differ in engine (x and y)"),
    ],
)
def test_file_refused(tmp_path: Path, name: str, text: str | bytes, words: str) -> None:
    message = refusal(tmp_path, text, name)
    assert words in message
    assert name in message
    assert "\x1b" not in message


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ReportedError, match="cannot be read"):
        load_table(tmp_path / "nothing.yaml")


def test_many_problems_are_not_all_shown(tmp_path: Path) -> None:
    message = refusal(tmp_path, "rows:\n" + "  - {concurrency: x}\n" * 40)
    assert message.count("concurrency") == 12
    assert "and 28 more" in message


def test_csv_as_people_write_it(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\ufeffArm;Engine;Accept Length;Throughput tok/s\n", encoding="utf-8")
    message = refusal(
        tmp_path, "Arm;Engine;Accept-Length;Throughput tok s\n# a note\nplain;SGLang;;12.5\n\nx;SGLang;?;fast\n", "u.csv"
    )
    assert "row 2 (x): throughput_tok_s" in message


@pytest.mark.parametrize("word", ["", "unknown", "n/a", "-", "?", "null", "not reported"])
def test_words_for_not_known(tmp_path: Path, word: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        f"arm,engine,drafter,accept_length,concurrency,throughput_tok_s\na,vllm,h,{word},{word},{word}\n", encoding="utf-8"
    )
    (row,) = load_table(path).rows
    assert (row.accept_length, row.concurrency, row.throughput_tok_s) == (None, None, None)


@pytest.mark.parametrize(("text", "value"), [("0.42", 0.42), ("42 %", 0.42), ("42", 0.42), ("42%", 0.42), ("0.5 %", 0.005)])
def test_rates(tmp_path: Path, text: str, value: float) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(f"rows: [{{arm: a, accept_rate: {text}}}]", encoding="utf-8")
    (row,) = load_table(path).rows
    assert row.accept_rate is not None
    assert row.accept_rate.value == pytest.approx(value)


def test_digits_survive_both_formats(tmp_path: Path) -> None:
    for name, text in (("t.yaml", "rows: [{arm: a, accept_length: 1.00}]"), ("t.csv", "arm,accept_length\na,1.00\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
        (row,) = load_table(tmp_path / name).rows
        assert row.accept_length is not None
        assert row.accept_length.half_width == pytest.approx(0.005)


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_spreadsheets_with_decimal_commas(tmp_path: Path, delimiter: str) -> None:
    lines = (
        "# note, with, commas",
        "Arm;Engine;Drafter;Throughput (tok/s);Accept Length;accept-rate;concurrency",
        "2,5B;vllm;h;812,5;2,35;45,0 %;8",
    )
    path = tmp_path / "table.csv"
    path.write_text("\n".join(lines).replace(";", delimiter), encoding="utf-8-sig")
    (row,) = load_table(path).rows
    figures = (row.throughput_tok_s, row.accept_length, row.accept_rate)
    assert [figure.value for figure in figures if figure is not None] == pytest.approx([812.5, 2.35, 0.45])
    assert row.arm == "2,5B"
    path.write_text("\n".join(lines).replace("812,5", "1,250"), encoding="utf-8")
    with pytest.raises(ReportedError, match="'1,250' has a comma"):  # 1.25 or 1250
        load_table(path)


MARKDOWN = """A table from an issue:

| arm | engine | drafter | draft tokens | accept length | concurrency | throughput tok/s |
|:---|---|---|---|---|---|---:|
| **plain** | vllm 0.11.0 | none | | | 1 | 100 |
| `spec` | vllm 0.11.0 | head | 3 | 2.50 | 1 | 160 |

And more words | with a bar.
"""
JSON = """{"defaults": {"engine": "vllm 0.11.0"}, "rows": [
 {"arm": "plain", "drafter": "none", "concurrency": 1, "throughput_tok_s": 100, "max_running_requests": null},
 {"arm": "spec", "drafter": "head", "draft_tokens": 3, "accept_length": 2.50, "concurrency": 1, "throughput_tok_s": 160}]}
"""


@pytest.mark.parametrize(("name", "text"), [("t.md", MARKDOWN), ("t.json", JSON)])
def test_markdown_and_json(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    plain, spec = load_table(path).rows
    assert (plain.arm, spec.arm) == ("plain", "spec")
    assert plain.max_running_requests is None
    assert str(spec.accept_length) == "2.50"
    assert spec.throughput_tok_s is not None
    assert spec.throughput_tok_s.value == 160.0


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("t.json", '{"rows": [{"arm": "a", "arm": "b"}]}', "'arm' is given twice"),
        ("t.json", '{"rows": [', "line 1"),
        ("t.json", "[1]", "must be a mapping"),
        ("t.json", "[" * 100_000, "nested too deeply"),
        ("t.md", "no table here", "needs a line of column names"),
        ("t.csv", "arm,engine,concurrency\nplain,vllm,1\n,vllm,8\n", "row 2: no arm; write merged cells out"),
    ],
)
def test_other_formats_refused(tmp_path: Path, name: str, text: str, words: str) -> None:
    assert words in refusal(tmp_path, text, name)
