"""Settings that are refused together are told, and their neighbours that are not refused are let be."""

from __future__ import annotations

import pytest

from breakeven.doctor.examine import examine
from breakeven.doctor.gather import Inputs, gather

SGLANG = "python -m sglang.launch_server --model-path org/m --max-running-requests 16 --speculative-algorithm {} "
TREE = (
    "--speculative-draft-model-path org/h --speculative-num-steps 3 --speculative-eagle-topk {} --speculative-num-draft-tokens 4 "
)
PARALLEL = "--dp-size 4 --enable-dp-attention "
VLLM = 'vllm serve org/m --max-num-seqs 16 -pp {} -sc \'{{"method": "{}", "model": "org/h", "num_speculative_tokens": 3{}}}\''


def told(launch: str, version: str | None = "0.5.23") -> set[tuple[str, str]]:
    found = examine(gather(Inputs(launch=launch, engine_version=version))).findings
    return {(one.severity, one.confidence) for one in found if one.code == "combination-refused"}


@pytest.mark.parametrize(
    "launch",
    [
        SGLANG.format("EAGLE3") + TREE.format(1) + PARALLEL,
        SGLANG.format("NGRAM") + "--dp-size 4",
        SGLANG.format("NGRAM") + "--dp-size 1 --enable-dp-attention",
        SGLANG.format("EAGLE3") + TREE.format(2) + "--page-size 64 --attention-backend fa3",
        SGLANG.format("EAGLE3") + TREE.format(2) + "--page-size 64",
        SGLANG.format("EAGLE3") + TREE.format(1) + "--page-size 64 --attention-backend trtllm_mla",
        SGLANG.format("EAGLE3") + TREE.format(1) + "--attention-backend trtllm_mha --speculative-use-rejection-sampling",
        SGLANG.format("DFLASH") + TREE.format(1) + PARALLEL + "--enable-dp-lm-head",
        "SGLANG_ENABLE_SPEC_V2=1 " + SGLANG.format("EAGLE3") + TREE.format(2),
    ],
)
def test_what_sglang_takes_together(launch: str) -> None:
    assert not told(launch)


@pytest.mark.parametrize(("pp", "method", "forced"), [(1, "eagle3", ""), (2, "mtp", ""), (1, "medusa", ""), (1, "eagle3", 4.0)])
def test_what_vllm_takes_together(pp: int, method: str, forced: object) -> None:
    more = f', "rejection_sample_method": "synthetic", "synthetic_acceptance_length": {forced}' if forced else ""
    assert not told(VLLM.format(pp, method, more), "0.32.0")


def test_without_a_release_what_only_some_refuse_is_a_warning() -> None:
    launch = "SGLANG_ENABLE_SPEC_V2=1 " + SGLANG.format("EAGLE3") + TREE.format(2)
    assert told(launch, "0.5.9") == {("error", "high")}
    assert told(launch, None) == {("warning", "medium")}
    assert told(SGLANG.format("DFLASH") + TREE.format(1) + "--pp-size 2", None) == {("error", "medium")}
