"""Logs of servers that never decoded: what they were started with and why they died counts, and is no reason to fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from breakeven.doctor.examine import examine
from breakeven.doctor.gather import Inputs, gather
from breakeven.doctor.result import DoctorResult
from breakeven.errors import UsageError

DECODING = "".join(
    f"[2026-11-02 08:03:{second:02}] Decode batch, #running-req: 4, #token: 900, token usage: 0.01, accept len: 2.40, accept rate: "
    "0.47, cuda graph: True, gen throughput (token/s): 410.0, #queue-req: 0\n"
    for second in range(0, 50, 2)
)
TARGET_AS_DRAFTER = (
    "[2026-11-02 08:01:00] server_args=ServerArgs(model_path='org/model', tp_size=1, max_running_requests=48, "
    "speculative_algorithm='EAGLE3', speculative_draft_model_path=None, speculative_num_steps=3, speculative_eagle_topk=1, "
    "speculative_num_draft_tokens=4)\n"
    "[2026-11-02 08:02:10] Scheduler hit an exception: Traceback (most recent call last):\n"
    '  File "/x/sglang/srt/speculative/eagle_worker.py", line 150, in __init__\n'
    "    self.draft_model_runner.model.set_embed(embed)\n"
    "AttributeError: 'Qwen2ForCausalLM' object has no attribute 'set_embed'\n"
    "[2026-11-02 08:02:11] Received sigquit from a child process. It usually means the child failed.\n"
)
# vLLM's own words for a speculative configuration without a model
WITHOUT_A_MODEL = (
    "(APIServer pid=12) Traceback (most recent call last):\n"
    '(APIServer pid=12)   File "/x/vllm/engine/arg_utils.py", line 1500, in create_speculative_config\n'
    "(APIServer pid=12) pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig\n"
    "(APIServer pid=12)   Value error, num_speculative_tokens was provided but without speculative model.\n"
)


def examined(tmp_path: Path, *logs: str, **inputs: str) -> DoctorResult:
    paths = []
    for number, text in enumerate(logs):
        paths.append(tmp_path / f"server{number}.log")
        paths[-1].write_text(text)
    return examine(gather(Inputs(logs=tuple(paths), **inputs)))  # type: ignore[arg-type]


def test_the_target_in_place_of_a_drafter_is_named_from_the_log_alone(tmp_path: Path) -> None:
    result = examined(tmp_path, TARGET_AS_DRAFTER)
    first, second = result.findings[:2]
    assert (first.code, first.explains) == ("drafter-not-given", ("server-did-not-start",))
    assert second.code == "server-did-not-start"
    assert "takes the target itself" in second.evidence[0]


def test_vllm_says_which_configuration_it_refused(tmp_path: Path) -> None:
    first = examined(tmp_path, WITHOUT_A_MODEL).findings[0]
    assert first.code == "server-did-not-start"
    assert "without speculative model" in first.evidence[0]


def test_a_start_that_failed_beside_one_that_serves_is_told_and_the_other_still_read(tmp_path: Path) -> None:
    result = examined(tmp_path, TARGET_AS_DRAFTER, DECODING)
    assert "server-did-not-start" in {one.code for one in result.findings}
    assert "1 readings of logs and metrics" in result.examined


def test_a_start_that_still_goes_on_is_no_fault(tmp_path: Path) -> None:
    result = examined(tmp_path, TARGET_AS_DRAFTER.splitlines()[0].replace("=None", "='org/head'") + "\n")
    assert "server-did-not-start" not in {one.code for one in result.findings}
    assert "drafter-not-given" not in {one.code for one in result.findings}


def test_an_error_while_it_serves_is_no_failed_start(tmp_path: Path) -> None:
    text = DECODING + "Traceback (most recent call last):\nValueError: a client sent nonsense\n"
    assert "server-did-not-start" not in {one.code for one in examined(tmp_path, text).findings}


def test_states_are_handed_out_without_a_drafter(tmp_path: Path) -> None:
    launch = "python -m sglang.launch_server --model-path m --speculative-algorithm EAGLE3 --enable-return-aux-hidden-states"
    assert "drafter-not-given" not in {one.code for one in examined(tmp_path, launch=launch).findings}


def test_draft_layers_of_the_target_need_no_folder(tmp_path: Path) -> None:
    launch = "python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --speculative-algorithm NEXTN"
    assert "drafter-not-given" not in {one.code for one in examined(tmp_path, launch=launch).findings}


VLLM_SERVED = (
    "(APIServer pid=1) INFO 11-30 20:41:40 [api_server.py:1] vLLM API server version 0.32.0\n"
    "INFO:     Application startup complete.\n"
    'INFO:     127.0.0.1:43750 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
)
# vLLM's own words at an end that was asked for
VLLM_TOLD_TO_END = (
    "(EngineCore pid=2) INFO 11-30 20:42:04 [core.py:1454] [shutdown] EngineCore: trigger received signal=SIGTERM\n"
    "(APIServer pid=1) ERROR 11-30 20:42:04 [async_llm.py:906] Traceback (most recent call last):\n"
    "(APIServer pid=1) ERROR 11-30 20:42:04 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered "
    "an issue. See stack trace (above) for the root cause.\n"
)
SGLANG_BANNER = (
    "[2026-11-30 20:50:15] server_args={'model_path': 'org/model', 'custom_sigquit_handler': None, "
    "'speculative_algorithm': 'EAGLE3', 'speculative_draft_model_path': 'org/head', "
    "'speculative_num_steps': 3, 'speculative_eagle_topk': 1, "
    "'speculative_num_draft_tokens': 4}\n"
)
# a warm-up request that came too early, and what follows an end that was asked for
SGLANG_SERVED = (
    SGLANG_BANNER + "ConnectionRefusedError: [Errno 111] Connection refused\n"
    "[2026-11-30 20:51:19] The server is fired up and ready to roll!\n"
    '[2026-11-30 20:51:20] INFO:     127.0.0.1:54304 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
)
SGLANG_TOLD_TO_END = (
    "[2026-11-30 20:51:29] SIGTERM received. signum=None frame=None. Draining requests and shutting down...\n"
    "[2026-11-30 20:51:30] Subprocess scheduler_0 (pid=18346) crashed with exit code -15. Triggering SIGQUIT for cleanup...\n"
)
SCHEDULER_DIED = "[2026-11-30 20:51:22] Scheduler hit an exception: Traceback (most recent call last):\nIndexError: out of range\n"


@pytest.mark.parametrize(
    "text",
    [
        VLLM_SERVED,
        VLLM_SERVED + VLLM_TOLD_TO_END,
        VLLM_SERVED + "Traceback (most recent call last):\nValueError: a client sent nonsense\n",
        SGLANG_BANNER,
        SGLANG_SERVED,
        SGLANG_SERVED + SGLANG_TOLD_TO_END,
    ],
)
def test_a_server_that_served_for_seconds_or_was_told_to_end_did_not_die(text: str, tmp_path: Path) -> None:
    """Too short for an interval: vLLM prints one every ten seconds, SGLang every forty steps."""
    result = examined(tmp_path, text)
    assert not result.has_errors
    assert any("printed no interval of decoding" in line for line in result.examined)


@pytest.mark.parametrize(("before", "after"), [(SGLANG_SERVED, SGLANG_TOLD_TO_END), (SGLANG_SERVED, "")])
def test_a_server_that_died_at_its_first_requests_did_start(before: str, after: str, tmp_path: Path) -> None:
    found = next(one for one in examined(tmp_path, before + SCHEDULER_DIED + after).findings if one.code == "server-did-not-start")
    assert "was ready and died" in found.title
    assert set(found.symptoms.values()) == {"crash"}
    assert "Connection refused" not in found.evidence[0]


@pytest.mark.parametrize("text", ["", "hello\n", "Traceback (most recent call last):\nKeyError: 'x'\n"])
def test_what_is_no_engines_log_is_still_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no line of vLLM"):
        examined(tmp_path, text)
