from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from breakeven.acceptance import Acceptance
from breakeven.engines.base import Counters
from breakeven.engines.prometheus import add_counters, read_samples, vllm_counters
from breakeven.errors import EngineError

EXPOSITION = """\
# HELP vllm:generation_tokens_total Tokens.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="a}b{\\"c\\""} 100.0
vllm:generation_tokens_total{engine="1",model_name="m"} 1e2
vllm:generation_tokens_created{engine="0",model_name="m"} 1.7e+09
vllm:prompt_tokens_total{engine="0"} 40.0
vllm:prompt_tokens_by_source_total{engine="0"} 4000.0
vllm:num_requests_running{engine="0"} 2.0
vllm:num_requests_running{engine="1"} 1.0
vllm:num_requests_waiting{engine="0"} 0.0
vllm:num_preemptions_total{engine="0"} 3.0
vllm:request_success_total{engine="0",finished_reason="stop"} 4.0
vllm:request_success_total{engine="0",finished_reason="length"} 5.0
vllm:time_to_first_token_seconds_count{engine="0"} 12.0
"""
SPECULATION = """\
vllm:spec_decode_num_drafts_total{engine="0"} 50.0
vllm:spec_decode_num_draft_tokens_total{engine="0"} 150.0
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 60.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 40.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="2"} 5.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",position="0"} 1.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 14.0
"""


def test_plain_counters_are_summed_over_engines_and_reasons() -> None:
    assert vllm_counters(EXPOSITION, 7.0) == Counters(
        time_s=7.0,
        prompt_tokens=40,
        generation_tokens=200,
        num_running=3,
        num_waiting=0,
        num_preemptions=3,
        num_requests=9,
        acceptance=None,
    )


def test_steps_are_exact_where_they_are_counted() -> None:
    counted = vllm_counters(EXPOSITION + SPECULATION + "breakeven:decode_steps_total 77\n", 0.0).acceptance
    assert counted == Acceptance(
        num_steps=77, num_rounds=50, num_drafted=150, num_accepted=60, accepted_per_position=(41, 14, 5), exact_steps=True
    )


def test_steps_are_derived_where_they_are_not() -> None:
    derived = vllm_counters(EXPOSITION + SPECULATION, 0.0).acceptance
    assert derived is not None
    assert derived.num_steps == 200 - 60 - 12
    assert not derived.exact_steps
    without_histogram = EXPOSITION.replace("vllm:time_to_first_token_seconds_count", "other") + SPECULATION
    older = vllm_counters(without_histogram, 0.0).acceptance
    assert older is not None
    assert older.num_steps == 200 - 60 - (9 + 3)


def test_derived_steps_are_never_fewer_than_the_rounds() -> None:
    # accepted tokens past the end of many short requests
    few = EXPOSITION.replace("1e2", "0") + SPECULATION
    acceptance = vllm_counters(few, 0.0).acceptance
    assert acceptance is not None
    assert acceptance.num_steps == acceptance.num_rounds == 50


@pytest.mark.parametrize(
    ("exposition", "complaint"),
    [
        ("<html>not found</html>", r"lack vllm:prompt_tokens, .*right metrics URL"),
        (EXPOSITION.replace("40.0", "forty"), "expected a number"),
        (EXPOSITION.replace("40.0", "NaN"), "is nan; expected a whole number"),
        (EXPOSITION.replace("40.0", "-1"), "is -1.0; expected a whole number"),
        (EXPOSITION.replace("40.0", "+Inf"), "is inf; expected a whole number"),
        (EXPOSITION.replace("40.0", "1e308"), "is 1e.308; expected a whole number"),
        (EXPOSITION + SPECULATION.replace('position="2"', 'position="99999999"'), "position '99999999'"),
    ],
)
def test_what_is_not_an_engines_metrics_is_refused(exposition: str, complaint: str) -> None:
    with pytest.raises(EngineError, match=complaint):
        vllm_counters(exposition, 0.0)


def test_replicas_are_summed_and_what_one_hides_is_unknown() -> None:
    plain, speculating = vllm_counters(EXPOSITION, 1.0), vllm_counters(EXPOSITION + SPECULATION, 2.0)
    both = add_counters([speculating, speculating])
    assert (both.time_s, both.generation_tokens, both.num_running, both.num_requests) == (2.0, 400, 6, 18)
    assert both.acceptance is not None
    assert both.acceptance.accepted_per_position == (82, 28, 10)
    mixed = add_counters([plain, speculating])
    assert mixed.acceptance is None
    with pytest.raises(ValueError, match="no replica"):
        add_counters([])


label_values = st.text(st.characters(codec="utf-8", exclude_characters="\r\x85\u2028\u2029\x0b\x0c\x1c\x1d\x1e"), max_size=12)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(label_values, label_values, st.floats(0, 1e12)), max_size=5))
def test_the_fast_reader_agrees_with_the_reference_parser(rows: list[tuple[str, str, float]]) -> None:
    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')

    lines = [f'a:b_total{{x="{escaped(x)}",y="{escaped(y)}"}} {value!r}' for x, y, value in rows]
    exposition = "# TYPE a:b counter\n" + "\n".join([*lines, "c:d 1"]) + "\n"
    reference = [
        (sample.labels, sample.value)
        for family in text_string_to_metric_families(exposition)
        for sample in family.samples
        if sample.name == "a:b_total"
    ]
    found = [(dict(sample.labels), sample.value) for sample in read_samples(exposition, ("a:b",)).get("a:b", [])]
    assert found == reference


def test_an_absent_family_is_absent() -> None:
    assert read_samples("a_total 1\n", ("b",)) == {}
    [sample] = read_samples("# a 3\naa 2\na 1 1700000000\n", ("a",))["a"]
    assert sample.value == 1
    assert not math.isnan(sample.value)
