"""Launch commands as people paste them."""

from __future__ import annotations

import pytest

from breakeven.doctor.launch import parse_launch
from breakeven.errors import UsageError


def test_a_command_over_several_lines() -> None:
    launch = parse_launch(
        """VLLM_USE_V2_MODEL_RUNNER=0 CUDA_VISIBLE_DEVICES=0,1 vllm serve org/target \\
          --tensor-parallel-size 2 --max_num_seqs=64 \\
          --enforce-eager  # for now
          --speculative-config '{"method": "eagle3", "model": "/heads/one", "num_speculative_tokens": 3}' 2>&1 | tee log"""
    )
    assert (launch.engine, launch.target) == ("vllm", "org/target")
    assert launch.env == {"VLLM_USE_V2_MODEL_RUNNER": "0", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert (launch.tensor_parallel, launch.max_running.value, launch.num_drafted, launch.num_verified) == (2, 64, 3, 4)
    assert (launch.method.value, launch.drafter.value) == ("eagle3", "/heads/one")
    assert launch.flag("--enforce-eager").value is True


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve t -sc.method=eagle3 -sc.model=/h -sc.num_speculative_tokens 5",
        "vllm serve t --spec-method eagle3 --spec-model /h --spec-tokens 5",
        """python3 -m vllm.entrypoints.openai.api_server --model=t -sc '{"method":"eagle3","model":"/h",
           "num_speculative_tokens":5}'""",
        """docker run --gpus all -p 8000:8000 vllm/vllm-openai:v0.26.0 --model t
           --speculative-config '{"method": "eagle3", "model": "/h", "num_speculative_tokens": 5}'""".replace("\n", " \\\n"),
    ],
)
def test_ways_to_ask_vllm_for_drafts(command: str) -> None:
    launch = parse_launch(command)
    assert (launch.engine, launch.target) == ("vllm", "t")
    assert (launch.method.value, launch.drafter.value, launch.num_drafted) == ("eagle3", "/h", 5)


def test_sglang_and_its_image() -> None:
    launch = parse_launch(
        "docker run -e SGLANG_X=1 lmsysorg/sglang:v0.5.9-cu129 python3 -m sglang.launch_server --model t --tp 8 "
        "--speculative-algo eagle3 --speculative-draft-model /h --speculative-num-steps 3 --speculative-eagle-topk 4 "
        "--speculative-num-draft-tokens 8 --cuda-graph-bs 1 2 4"
    )
    assert (launch.engine, launch.version, launch.target, launch.tensor_parallel) == ("sglang", "0.5.9", "t", 8)
    assert (launch.method.value, launch.drafter.value, launch.num_drafted, launch.num_verified) == ("EAGLE3", "/h", 3, 8)
    assert launch.flag("--cuda-graph-bs").value == ("1", "2", "4")


def test_a_chain_of_sglang_verifies_one_token_more_than_its_steps() -> None:
    flags = "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 24"
    assert parse_launch(f"sglang serve t --speculative-algorithm EAGLE3 {flags}").num_verified == 4


def test_a_plain_server_does_not_speculate() -> None:
    assert not parse_launch("vllm serve t --port 8000").speculates
    assert not parse_launch("python -m sglang.launch_server --model-path t").speculates


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("vllm serve 'x", "check its quotes"),
        ("echo hello", "no server that is known"),
        ("pip install vllm", "no server that is known"),
        ("x" * 200_000, "at most 100000"),
    ],
)
def test_what_is_no_launch_is_refused(command: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        parse_launch(command)


@pytest.mark.parametrize("config", ["{", "[1]", '"x"', "3"])
def test_a_broken_speculative_config_is_refused(config: str) -> None:
    with pytest.raises(UsageError, match="--speculative-config"):
        _ = parse_launch(["vllm", "serve", "t", "--speculative-config", config]).speculative
