from __future__ import annotations

from pathlib import Path

import pytest

from breakeven.engines.registry import get_engine
from breakeven.engines.server_log import log_tail

VLLM = get_engine("vllm")
RECORDED = Path(__file__).with_name("recorded")
ENGINE = "(EngineCore pid=7) ERROR 11-30 09:30:47 [core.py:1512] "


@pytest.mark.parametrize(("log", "explained"), [
    ("0.32.0-cpu-forced.log", "vLLM cannot accept drafts to order where it samples on the CPU"),
    ("0.32.0-cpu-wrongdraft.log", "A checkpoint has a tensor model that LlamaModel does not know"),
    ("0.32.0-cpu-nodraft.log", "A model or drafter folder is not there"),
])  # fmt: skip
def test_recorded_failures_of_the_real_engine(log: str, explained: str) -> None:
    assert (VLLM.explain_failure(log_tail(RECORDED / log, 300), 1) or "").startswith(explained)


def test_a_server_that_runs_well_shows_no_fault() -> None:
    assert VLLM.explain_failure(log_tail(RECORDED / "0.32.0-cpu-eagle3.log", 300), None) is None


@pytest.mark.parametrize(("line", "explained"), [
    (
        ENGINE + "ValueError: To serve at least one request with the model's max seq len (131072), (16.0 GiB KV cache is needed, "
        "which is larger than the available KV cache memory (3.25 GiB). Based on the available memory, the estimated maximum",
        "The KV cache is too small for one request of 131072 tokens: it takes 16.0 GiB and 3.25 GiB are left. Lower context_length",
    ),
    (ENGINE + "ValueError: No available memory for the cache blocks. Try increasing", "The weights leave no memory"),
    (
        ENGINE + "ValueError: Free memory on device (2.1/79.1 GiB) on startup is less than desired GPU memory utilization (0.9",
        "Only 2.1 of 79.1 GiB of the GPU's memory are free",
    ),
    (
        ENGINE + "ValueError: Free memory on device cuda:0 (2.1/79.1 GiB) on startup is less than desired GPU memory utilization",
        "Only 2.1 of 79.1 GiB of the GPU's memory are free",
    ),
    (
        ENGINE + "ValueError: Available memory on node 0 (20.1/23.54 GiB) on kv cache allocation is less than requested memory",
        "Only 20.1 of 23.54 GiB of memory are free",
    ),
    (ENGINE + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "Memory ran out"),
    (ENGINE + "KeyError: 'layers.0.mlp.experts.3.w1.weight_scale'", "The checkpoint has a tensor layers.0"),
    (ENGINE + "KeyError: 'd2t'", "The checkpoint has a tensor d2t"),
    (ENGINE + "ValueError: Following weights were not initialized from checkpoint: {'fc.weight'}", "The checkpoint lacks tensors"),
    (ENGINE + "RuntimeError: Model does not support EAGLE3 interface but aux_hidden_state_outputs", "This release of"),
    ("AssertionError: Eagle3 is only supported for ['llama', 'qwen'] models. Got self.target", "This release of"),
    (ENGINE + "ValueError: DeepseekV3ForCausalLM does not support eagle3 with pipeline parallelism", "This release of"),
    ("vllm: error: unrecognized arguments: --cuda-graph-sizes 16", "This release of vLLM does not know --cuda-graph-sizes 16:"),
    ("vllm serve: error: argument --dtype: invalid choice: 'fp7'", "vLLM refuses --dtype: invalid choice: 'fp7'."),
    ("OSError: [Errno 98] Address already in use", "Another program took the port"),
    ("[Errno 98] error while attempting to bind on address ('127.0.0.1', 8000): address already in use", "Another program took"),
    ("ModuleNotFoundError: No module named 'cpuinfo'", "vLLM's environment lacks the Python package cpuinfo"),
    ("ImportError: libcudart.so.12: cannot open shared object file: No such file", "vLLM's environment lacks the library"),
    ("RuntimeError: Failed to infer device type, please set", "vLLM finds no GPU"),
    (ENGINE + "ValueError: something {nobody} knows yet", "It said: ValueError: something {nobody} knows yet."),
])  # fmt: skip
def test_start_up_faults_are_explained(line: str, explained: str) -> None:
    below = "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
    found = VLLM.explain_failure(["INFO 11-30 09:30:26 [x.py:1] fine", line, below], 1) or ""
    assert found.startswith(explained)
    assert found.endswith(".")


def test_what_no_line_explains() -> None:
    assert VLLM.explain_failure(["RuntimeError: Engine core initialization failed. See root cause above."], 1) is None
    assert "memory runs out" in (VLLM.explain_failure([], -9) or "")
