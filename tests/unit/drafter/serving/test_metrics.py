from __future__ import annotations

import logging
import re

import pytest

from breakeven.acceptance import Acceptance
from breakeven.drafter.serving.metrics import Exposition, IntervalLog
from breakeven.drafter.serving.requests import CoreStats


def stats(**changes: int | Acceptance) -> CoreStats:
    nothing = {"num_running": 0, "num_waiting": 0, "prompt_tokens": 0, "generation_tokens": 0, "num_requests": 0, "near_ties": 0}
    no_drafts = Acceptance(num_steps=0, num_rounds=0, num_drafted=0, num_accepted=0)
    return CoreStats(**{**nothing, "acceptance": no_drafts, **changes})  # type: ignore[arg-type]


def test_plain_decoding_has_no_speculation_counters() -> None:
    text = Exposition(stats, model_name="m", speculating=False).text().decode()
    assert "vllm:generation_tokens_total" in text
    assert "spec_decode" not in text


def test_model_names_are_escaped() -> None:
    text = Exposition(stats, model_name='a"b\\c\nd', speculating=False).text().decode()
    assert 'model_name="a\\"b\\\\c\\nd"' in text


def test_log_lines_are_vllms(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    now_s = [100.0]
    log = IntervalLog(stats(), clock=lambda: now_s[0])
    now_s[0] = 110.0
    window = Acceptance(num_steps=50, num_rounds=40, num_drafted=120, num_accepted=60, accepted_per_position=(30, 20, 10))
    log.write(stats(num_running=2, num_waiting=1, prompt_tokens=100, generation_tokens=110, acceptance=window))
    engine, speculation = (record.message for record in caplog.records)
    assert engine == (
        "Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: 11.0 tokens/s, "
        "Running: 2 reqs, Waiting: 1 reqs"
    )
    assert speculation == (
        "SpecDecoding metrics: Mean acceptance length: 2.50, Accepted throughput: 6.00 tokens/s, "
        "Drafted throughput: 12.00 tokens/s, Accepted: 60 tokens, Drafted: 120 tokens, "
        "Per-position acceptance rate: 0.750, 0.500, 0.250, Avg Draft acceptance rate: 50.0%"
    )


def test_log_goes_quiet_after_one_idle_interval(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    now_s = [0.0]
    log = IntervalLog(stats(), clock=lambda: now_s[0])
    busy = stats(generation_tokens=50)
    for reading in (stats(), busy, busy, busy):
        now_s[0] += 10.0
        log.write(reading)
    rates = [re.search(r"generation throughput: (\S+)", record.message) for record in caplog.records]
    assert [match and match[1] for match in rates] == ["5.0", "0.0"]
