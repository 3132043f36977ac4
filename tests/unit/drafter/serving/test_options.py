from __future__ import annotations

import pytest

from breakeven.drafter.serving.options import ServerOptions, parse_flags
from breakeven.errors import UsageError


def test_every_flag_lands_in_its_field() -> None:
    line = (
        "--model m --port 81 --host ::1 --served-model-name s --method eagle3 --num-draft-tokens 4 --draft-model d "
        "--forced-accept-length 2.5 --ngram-max 5 --ngram-min 2 --dtype bfloat16 --max-num-seqs 3 --context-length 99 "
        "--num-threads 1 --seed 8"
    )
    assert parse_flags(line.split()) == ServerOptions(
        model="m",
        port=81,
        host="::1",
        served_model_name="s",
        method="eagle3",
        num_draft_tokens=4,
        draft_model="d",
        forced_accept_length=2.5,
        ngram_max=5,
        ngram_min=2,
        dtype="bfloat16",
        max_num_seqs=3,
        context_length=99,
        num_threads=1,
        seed=8,
    )


def test_flags_default_to_the_records_defaults() -> None:
    assert parse_flags(["--model", "m", "--port", "1"]) == ServerOptions(model="m", port=1)
    assert parse_flags(["--model", "m", "--port", "1"]).model_name == "m"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--model m", "--port"),
        ("--model m --port x", "invalid int value"),
        ("--model m --port 1 --sed 3", "unrecognized arguments: --sed"),
        ("--model m --port 1 --method eagle", "invalid choice: 'eagle'"),
        ("--model m --port 1 --host 0.0.0.0", "listens on loopback only"),
        ("--model m --port 70000", "expected 1 to 65535"),
        ("--model m --port 1 --num-threads 0", "expected at least 1"),
        ("--model m --port 1 --context-length 1", "expected at least 2"),
        ("--model m --port 1 --num-draft-tokens 0", "expected 1 to 64"),
        ("--model m --port 1 --num-draft-tokens 1000000", "expected 1 to 64"),
        ("--model m --port 1 --seed -1", "--seed -1: expected 0 to"),
        ("--model m --port 1 --seed 99999999999999999999", "expected 0 to 9223372036854775807"),
        ("--model m --port 1 --max-num-seqs 0", "expected 1 to 4096"),
        ("--model m --port 1 --max-num-seqs 100000", "expected 1 to 4096"),
        ("--model m --port 1 --method ngram --draft-schedule 1-8", "expected FIRST-LAST:DRAFTS"),
        ("--model m --port 1 --method ngram --draft-schedule 2-8:1", "found 2-8 where a range from 1 was expected"),
        ("--model m --port 1 --method ngram --draft-schedule 1-8:1,10-12:0", "found 10-12 where a range from 9 was expected"),
        ("--model m --port 1 --method ngram --draft-schedule 1-8:4", "4 drafts at 1-8, above --num-draft-tokens 3"),
        ("--model m --port 1 --draft-schedule 1-8:1", "--draft-schedule goes with --method"),
        ("--model m --port 1 --draft-model d", "--draft-model goes with --method eagle3"),
    ],
)
def test_mistakes_are_usage_errors(line: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_flags(line.split())
    assert message in str(raised.value)
