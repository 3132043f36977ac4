from __future__ import annotations

from pathlib import Path

import pytest

from breakeven.engines.base import Arm, Speculation
from breakeven.engines.registry import get_engine
from breakeven.engines.server_log import log_lines
from breakeven.errors import EngineError

VLLM = get_engine("vllm")
RECORDED = Path(__file__).with_name("recorded")
PLAIN = Arm(name="p", engine="vllm", url="http://127.0.0.1:1")
EAGLE3 = Arm(name="e", engine="vllm", url="http://127.0.0.1:1", speculation=Speculation(method="eagle3", num_draft_tokens=3))


def test_facts_of_the_real_engine() -> None:
    metrics = (RECORDED / "0.32.0-cpu-eagle3.metrics").read_text()
    assert VLLM.facts(EAGLE3, log_lines(RECORDED / "0.32.0-cpu-eagle3.log"), metrics) == {
        "engine": "vllm",
        "version": "0.32.0",
        "architecture": "LlamaForCausalLM",
        "drafter_class": "LlamaForCausalLMEagle3",
        "dtype": "float32",
        "context_length": 1024,
        "tensor_parallel": 1,
        "pipeline_parallel": 1,
        "quantization": None,
        "kv_cache_dtype": "auto",
        "enforce_eager": True,
        "prefix_caching": True,
        "graph_mode": "CUDAGraphMode.NONE",
        "method": "eagle3",
        "drafter": "/models/random-head",
        "num_draft_tokens": 3,
        "max_running_requests": 4,
        "max_scheduled_tokens": 2048,
        "auxiliary_layers": [2, 15, 27],
        "kv_cache_tokens": 22528,
        "runner": "V1",
    }


@pytest.mark.parametrize(("line", "fact", "value"), [
    ("INFO 05-01 09:30:26 [api_server.py:1043] vLLM API server version 0.8.5.post1", "version", "0.8.5.post1"),
    ("INFO [gpu_model_runner.py:1] Using auxiliary layers from speculative config: (2, 30, 58)", "auxiliary_layers", [2, 30, 58]),
    ("INFO [eagle3_utils.py:27] Using Eagle3 auxiliary layers from config: (2, 30, 58)", "auxiliary_layers_source", "config"),
    ("INFO [eagle3_utils.py:30] Using Eagle3 auxiliary layers from model: (2, 16, 29)", "auxiliary_layers", [2, 16, 29]),
    ("INFO [kv_cache_utils.py:864] GPU KV cache size: 1,234,560 tokens", "kv_cache_tokens", 1_234_560),
    ("INFO [cuda.py:230] Using Flash Attention backend on V1 engine.", "attention_backend", "Flash Attention"),
    ("INFO [cuda.py:507] Using FLASH_ATTN attention backend out of potential backends: [...]", "attention_backend", "FLASH_ATTN"),
    ("INFO [cuda.py:446] Using AttentionBackendEnum.FLASHINFER backend.", "attention_backend", "FLASHINFER"),
    ("WARNING [vllm.py:725] Model Runner V2 requires Triton; using the V1 model runner instead.", "runner", "V1"),
])  # fmt: skip
def test_a_fact_by_the_line_that_tells_it(line: str, fact: str, value: object) -> None:
    assert VLLM.facts(EAGLE3, [line], "")[fact] == value


def test_capacity_from_blocks_where_tokens_are_not_printed() -> None:
    old = 'vllm:cache_config_info{block_size="16",cache_dtype="auto",num_gpu_blocks="1000"} 1.0\n'
    assert VLLM.facts(PLAIN, [], old) == {"engine": "vllm", "kv_cache_tokens": 16_000}


def test_what_is_not_printed_is_left_out() -> None:
    assert VLLM.facts(PLAIN, [], "") == {"engine": "vllm"}


def test_counters_of_the_real_engine() -> None:
    counters = VLLM.parse_metrics((RECORDED / "0.32.0-cpu-eagle3.metrics").read_text(), 1.5)
    assert (counters.time_s, counters.prompt_tokens, counters.generation_tokens, counters.num_requests) == (1.5, 68, 48, 2)
    acceptance = counters.acceptance
    assert acceptance is not None
    assert (acceptance.num_steps, acceptance.num_rounds, acceptance.num_drafted, acceptance.num_accepted) == (46, 46, 138, 0)
    assert acceptance.accepted_per_position == (0, 0, 0)
    assert acceptance.accept_length == 1.0
    assert not acceptance.exact_steps
    plain = VLLM.parse_metrics((RECORDED / "0.32.0-cpu-plain.metrics").read_text(), 0.0)
    assert plain.acceptance is None


def test_ngram_is_divided_by_all_steps_not_by_those_that_carried_drafts() -> None:
    acceptance = VLLM.parse_metrics((RECORDED / "0.32.0-cpu-ngram.metrics").read_text(), 0.0).acceptance
    assert acceptance is not None
    assert acceptance.num_rounds < acceptance.num_steps
    assert acceptance.accept_length <= acceptance.per_round_length


def test_metrics_of_another_engine_are_refused() -> None:
    with pytest.raises(EngineError, match="expected vLLM's names"):
        VLLM.parse_metrics("sglang:num_running_reqs 1\n", 0.0)
