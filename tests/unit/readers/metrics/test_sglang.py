"""SGLang's gauges: what a rate may mean, and counts of verify calls where two scrapes have them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from breakeven.readers.files import Told
from breakeven.readers.reading import Reading, ReadResult

ReadOne = Callable[..., Reading]
Read = Callable[..., ReadResult]


@pytest.mark.parametrize("tokens_known", [True, False])
def test_a_rate_alone_gives_both_and_asks(read_one: ReadOne, tokens_known: bool) -> None:
    dump = '# TYPE sglang:spec_accept_rate gauge\nsglang:spec_accept_rate{model_name="k2"} 0.42\n'
    if tokens_known:
        dump += 'sglang:spec_num_steps{model_name="k2"} 3\nsglang:spec_num_draft_tokens{model_name="k2"} 4\n'
    reading = read_one(dump, Told(break_even=1.95))
    found = reading.acceptance
    assert found is not None
    assert found.accept_length is None
    assert found.draft_acceptance is None
    (finding,) = [f for f in reading.findings if f.code == "rate-ambiguous"]
    shown = " ".join(finding.evidence)
    assert "2.26" in shown
    assert "1.68" in shown
    assert "--engine-version" in finding.remedy
    if tokens_known:
        (speed,) = [f for f in reading.findings if f.code == "decode-speedup"]
        assert "0.86x, slower" in " ".join(speed.evidence)
        assert "1.16x, pays" in " ".join(speed.evidence)


def scrape(tokens: int, requests: int, verified: int, length: float = 3.0) -> str:
    counts = {"generation_tokens_total": tokens, "num_requests_total": requests, "spec_verify_calls_total": verified}
    gauges = {"spec_accept_length": length, "spec_num_steps": 3, "spec_num_draft_tokens": 4}
    return "".join(f'sglang:{name}{{model_name="k2"}} {value}\n' for name, value in {**counts, **gauges}.items())


def test_verify_calls_of_two_scrapes_give_the_length_of_the_whole_window(read: Read) -> None:
    (reading,) = read(scrape(1000, 10, 400), scrape(3100, 110, 1400)).readings
    found = reading.acceptance
    assert found is not None
    assert (found.accept_length, found.rounds, found.basis) == (2.0, 1000, "counters")
    assert found.mean_of_lines == 3.0


def test_counts_that_do_not_belong_together_leave_the_gauge(read: Read) -> None:
    (reading,) = read(scrape(1000, 10, 400), scrape(1500, 110, 1400)).readings
    found = reading.acceptance
    assert found is not None
    assert (found.accept_length, found.basis) == (3.0, "gauges: the last interval only")
