"""SGLang's metrics, /server_info and logs. The texts are written after the releases' sources, not recorded from a GPU."""

from __future__ import annotations

import json
import math

import pytest

from breakeven.engines.base import Arm, Speculation
from breakeven.engines.foreign_traffic import foreign_traffic
from breakeven.engines.registry import get_engine
from breakeven.errors import EngineError

SGLANG = get_engine("sglang")
ARM = Arm(name="e", engine="sglang", url="http://h:1", speculation=Speculation(method="eagle3", num_draft_tokens=3))
GAUGES = """
# HELP sglang:num_running_reqs The number of running requests.
sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 3.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 1.0
"""
COUNTERS = """
sglang:prompt_tokens_total{model_name="m"} 100.0
sglang:generation_tokens_total{model_name="m",is_streaming="True"} 400.0
sglang:generation_tokens_total{model_name="m",is_streaming="False"} 10.0
sglang:num_requests_total{model_name="m"} 10.0
"""
SPECULATION = """
sglang:spec_accept_length{model_name="m",tp_rank="0"} 1.75
sglang:spec_num_steps{model_name="m",tp_rank="0"} 3.0
sglang:spec_verify_calls_total{model_name="m"} 250.0
"""
INFO = {
    "version": "0.5.23",
    "dtype": "float32",
    "context_length": 2048,
    "max_running_requests": 8,
    "tp_size": 1,
    "quantization": None,
    "attention_backend": "intel_amx",
    "speculative_algorithm": "EAGLE3",
    "speculative_draft_model_path": "/models/head",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
    "max_total_num_tokens": 8192,
    "internal_states": [{"avg_spec_accept_length": 1.75, "effective_max_running_requests_per_dp": 8}],
}


def test_counters_without_speculation() -> None:
    counters = SGLANG.parse_metrics(GAUGES + COUNTERS, 2.0)
    assert (counters.time_s, counters.num_running, counters.num_waiting) == (2.0, 3, 1)
    assert (counters.prompt_tokens, counters.generation_tokens, counters.num_requests) == (100, 410, 10)
    assert counters.acceptance is None
    assert counters.gauge_accept_length is None


def test_acceptance_from_verify_calls_of_the_requests_that_ended() -> None:
    counters = SGLANG.parse_metrics(GAUGES + COUNTERS + SPECULATION, 0.0)
    acceptance = counters.acceptance
    assert acceptance is not None
    assert (acceptance.num_steps, acceptance.num_accepted) == (250, 150)
    assert acceptance.accept_length == 1.6
    assert not acceptance.exact_steps
    assert counters.gauge_accept_length == 1.75


@pytest.mark.parametrize("num_steps", ["0.0", "3.0", "12.0"])
def test_gauges_that_change_meaning_are_not_taken_for_a_count_of_drafts(num_steps: str) -> None:
    counters = SGLANG.parse_metrics(GAUGES + COUNTERS + SPECULATION.replace("3.0", num_steps), 0.0)
    assert counters.acceptance is not None
    assert counters.acceptance.num_drafted == 0
    assert math.isnan(counters.acceptance.draft_acceptance)


def test_gauges_are_kept_apart_where_a_release_counts_no_verify_calls() -> None:
    counters = SGLANG.parse_metrics(GAUGES + COUNTERS + 'sglang:spec_accept_length{model_name="m"} 2.25\n', 0.0)
    assert counters.acceptance is None
    assert counters.gauge_accept_length == 2.25


def test_an_idle_server_with_speculation_has_counted_nothing_yet() -> None:
    gauges = 'sglang:spec_num_steps{model_name="m"} 3.0\nsglang:spec_accept_length{model_name="m"} 0.0\n'
    counters = SGLANG.parse_metrics(GAUGES + gauges, 0.0)
    assert counters.acceptance is not None
    assert (counters.acceptance.num_steps, counters.acceptance.num_accepted) == (0, 0)
    assert counters.gauge_accept_length is None


def test_every_rank_tells_of_the_same_requests() -> None:
    second = GAUGES.replace('tp_rank="0"', 'tp_rank="1"')
    assert SGLANG.parse_metrics(GAUGES + second, 0.0).num_running == 3


def test_tokens_counted_at_the_end_of_requests_are_no_foreign_traffic() -> None:
    before = SGLANG.parse_metrics(GAUGES + COUNTERS, 0.0)
    after = SGLANG.parse_metrics(GAUGES + COUNTERS.replace("400.0", "5000.0"), 9.0)
    assert foreign_traffic(before, after, own_tokens=100, own_finished=0, under_way=1.0) is None
    more = SGLANG.parse_metrics(
        GAUGES + COUNTERS.replace('num_requests_total{model_name="m"} 10.0', 'num_requests_total{model_name="m"} 90.0'), 9.0
    )
    assert "requests more" in (foreign_traffic(before, more, own_tokens=100, own_finished=5, under_way=1.0) or "")


@pytest.mark.parametrize("text", ["", "vllm:prompt_tokens_total 1\n", COUNTERS])
def test_metrics_of_another_engine_are_refused(text: str) -> None:
    with pytest.raises(EngineError, match=r"expected SGLang's names.*--enable-metrics"):
        SGLANG.parse_metrics(text, 0.0)


def test_facts_of_server_info() -> None:
    assert SGLANG.facts(ARM, (), "", json.dumps(INFO)) == {
        "engine": "sglang",
        "version": "0.5.23",
        "dtype": "float32",
        "context_length": 2048,
        "max_running_requests": 8,
        "tensor_parallel": 1,
        "attention_backend": "intel_amx",
        "algorithm": "EAGLE3",
        "drafter": "/models/head",
        "num_steps": 3,
        "topk": 1,
        "num_draft_tokens": 3,
        "kv_cache_tokens": 8192,
    }


def test_what_the_scheduler_really_admits_counts() -> None:
    states = [{"effective_max_running_requests_per_dp": 12}]
    info = json.dumps(INFO | {"max_running_requests": 64, "dp_size": 2, "internal_states": states})
    assert SGLANG.facts(ARM, (), "", info)["max_running_requests"] == 24


@pytest.mark.parametrize("page", ["", "<html>", "[]", '{"internal_states": 3}'])
def test_a_page_that_tells_nothing(page: str) -> None:
    assert SGLANG.facts(ARM, (), "", page) == {"engine": "sglang"}


def test_facts_of_the_log() -> None:
    lines = [
        "[2026-11-30 09:30:47] Load weight end. elapsed=0.2 s, type=LlamaForCausalLMEagle3, dtype=torch.float32, avail mem=1 GB",
        "[2026-11-30 09:30:47] max_total_num_tokens=8192, chunked_prefill_size=2048, max_running_requests=8",
    ]
    assert SGLANG.facts(ARM, lines, "") == {
        "engine": "sglang",
        "kv_cache_tokens": 8192,
        "drafter_class": "LlamaForCausalLMEagle3",
    }


@pytest.mark.parametrize(("line", "explained"), [
    ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "The weights leave no memory"),
    ("RuntimeError: Not enough memory; please try --mem-fraction-static=0.9", "The weights leave no memory"),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "Memory ran out"),
    ("ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes.", "Another program holds"),
    (
        "ValueError: Warning: User-specified context_length (8192) is greater than the derived context_length (2048). This may",
        "A model serves at most 2048 tokens of context and 8192 were asked for",
    ),
    (
        '  File "/x/sglang/srt/layers/attention/base_attn_backend.py", line 258, in init_cuda_graph_state',
        "SGLang records graphs for every number of drafts of a schedule",
    ),
    ("AttributeError: 'X' object has no attribute 'set_eagle3_layers_to_capture'", "This release of SGLang does not speculate"),
    ("AttributeError: 'LlamaForCausalLM' object has no attribute 'hot_token_id'", "What was loaded as the drafter is a Llama"),
    ("AttributeError: 'Qwen2ForCausalLM' object has no attribute 'set_embed'", "What was loaded as the drafter is a Qwen2"),
    ("ValueError: Invalid SGLANG_SIMULATE_ACC_TOKEN_MODE 'x'; expected", "This release of SGLang does not know the way"),
    ("KeyError: 'model.layers.0.mlp.experts.w1.weight'", "A checkpoint has a tensor model.layers.0"),
    ("RuntimeError: The size of tensor a (64) must match the size of tensor b (32)", "A checkpoint's tensor has another shape"),
    ("OSError: /nope does not appear to have a file named config.json.", "A model or drafter folder is not there"),
    ("launch_server.py: error: unrecognized arguments: --speculative-x 3", "This release of SGLang does not know"),
    ("launch_server.py: error: argument --dtype: invalid choice: 'fp7'", "SGLang refuses --dtype: invalid choice: 'fp7'."),
    ("[Errno 98] error while attempting to bind on address ('127.0.0.1', 8000): address already in use", "Another program took"),
    ("ModuleNotFoundError: No module named 'sgl_kernel'", "SGLang's environment lacks the Python package sgl_kernel"),
    ("ImportError: libnuma.so.1: cannot open shared object file: No such file", "SGLang's environment lacks the library"),
    ("RuntimeError: No accelerator (CUDA, XPU, HPU, NPU) is available.", "SGLang finds no GPU"),
    ("ValueError: something new", "It said: ValueError: something new."),
])  # fmt: skip
def test_start_up_faults_are_explained(line: str, explained: str) -> None:
    below = "Exception: Rank 0 scheduler died during initialization"
    prefixed = f"[2026-11-30 09:30:47 TP0] {line}"
    for shown in (line, prefixed):
        assert (SGLANG.explain_failure(["[2026-11-30 09:30:40] fine", shown, below], 1) or "").startswith(explained)
    assert SGLANG.explain_failure(["[2026-11-30 09:30:40] fine"], 1) is None


def test_models_that_are_not_served_lack_packages_and_are_no_fault() -> None:
    """A start on a CPU prints one such line for every model whose package is not there."""
    line = "[2026-11-30 17:46:35] Ignore import error when loading sglang.srt.models.inkling: No module named 'cutlass'"
    assert SGLANG.explain_failure([line], 1) is None
