from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from breakeven.checkpoints.folder import open_folder
from breakeven.checkpoints.random_head import write_random_head
from breakeven.engines.base import Arm, Speculation
from breakeven.engines.registry import get_engine
from breakeven.errors import BreakevenError, CheckpointError, EngineError, PlanError, UsageError

LOCAL = get_engine("local")
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 8,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 64,
}


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "target"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    return folder


@pytest.fixture
def head(target: Path, tmp_path: Path) -> Path:
    write_random_head(open_folder(target), tmp_path / "head")
    return tmp_path / "head"


def eagle3(target: Path, head: Path | None, **changes: object) -> Arm:
    speculation = dataclasses.replace(Speculation(method="eagle3", num_draft_tokens=3, drafter=head), **changes)  # type: ignore[arg-type]
    return Arm(name="e", engine="local", target=target, speculation=speculation)


def test_the_plain_command() -> None:
    arm = Arm(
        name="plain",
        engine="local",
        target=Path("/m"),
        served_name="m",
        max_running_requests=4,
        context_length=512,
        num_threads=2,
        seed=5,
        extra_flags=("--host", "::1"),
        env={"A": "1"},
    )
    command = LOCAL.launch_command(arm, 8000)
    assert command.argv == (
        *(sys.executable, "-m", "breakeven.drafter.serving", "--model", "/m", "--port", "8000", "--dtype", "auto"),
        *("--max-num-seqs", "4", "--seed", "5", "--served-model-name", "m", "--context-length", "512", "--num-threads", "2"),
        *("--host", "::1"),
    )
    assert command.env == {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "2", "A": "1"}


def test_the_server_understands_every_flag(target: Path, head: Path) -> None:
    from breakeven.drafter.serving.options import parse_flags

    arm = dataclasses.replace(eagle3(target, head, forced_accept_length=2.5), served_name="m", context_length=64, num_threads=1)
    options = parse_flags(LOCAL.launch_command(arm, 8000).argv[3:])
    assert (options.method, options.num_draft_tokens, options.draft_model) == ("eagle3", 3, str(head))
    assert (options.forced_accept_length, options.max_num_seqs, options.context_length, options.num_threads) == (2.5, 8, 64, 1)
    scheduled = eagle3(target, head, schedule=((1, 4, 3), (5, 8, 0)))
    options = parse_flags(LOCAL.launch_command(scheduled, 8000).argv[3:])
    assert options.draft_schedule == ((1, 4, 3), (5, 8, 0))
    ngram = Arm(
        name="n",
        engine="local",
        target=target,
        speculation=Speculation(method="ngram", num_draft_tokens=4, ngram_max=5, ngram_min=2),
    )
    options = parse_flags(LOCAL.launch_command(ngram, 8000).argv[3:])
    assert (options.method, options.num_draft_tokens, options.ngram_max, options.ngram_min) == ("ngram", 4, 5, 2)


def test_a_head_that_fits_passes(target: Path, head: Path) -> None:
    LOCAL.check(eagle3(target, head))
    LOCAL.check(eagle3(target, head, forced_accept_length=4.0))


@pytest.mark.parametrize(
    ("change", "error", "complaint"),
    [
        (lambda arm: dataclasses.replace(arm, target=None), UsageError, "no target"),
        (lambda arm: dataclasses.replace(arm, target=Path("/nope")), CheckpointError, "/nope: nothing there"),
        (lambda arm: dataclasses.replace(arm, dtype="float16"), UsageError, "dtype 'float16'"),
        (lambda arm: dataclasses.replace(arm, tensor_parallel=2), UsageError, "tensor_parallel is for vLLM and SGLang"),
        (lambda arm: dataclasses.replace(arm, command=("serve", "{port}")), UsageError, "command is for vLLM and SGLang"),
        (lambda arm: dataclasses.replace(arm, executable=Path("/x")), UsageError, "executable is for vLLM and SGLang"),
        (lambda arm: eagle3(arm.target, None), UsageError, "eagle3 without a drafter"),
        (lambda arm: eagle3(arm.target, arm.target), CheckpointError, "expects an EAGLE-3 head"),
        (lambda arm: eagle3(arm.target, Path("/nope")), CheckpointError, "/nope: nothing there"),
        (lambda arm: eagle3(arm.target, None, method="ngram", drafter=arm.target), UsageError, "only eagle3 has one"),
        (lambda arm: eagle3(arm.target, arm.target, forced_accept_length=4.1), UsageError, r"4\.1.* allow 1 to 4"),
        (lambda arm: eagle3(arm.target, arm.target, forced_accept_length=0.9), UsageError, "allow 1 to 4"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    change: Callable[[Arm], Arm], error: type[BreakevenError], complaint: str, target: Path
) -> None:
    with pytest.raises(error, match=complaint):
        LOCAL.check(change(Arm(name="a", engine="local", target=target)))


def test_another_architecture_is_refused(target: Path) -> None:
    (target / "config.json").write_text(json.dumps(CONFIG | {"architectures": ["MambaForCausalLM"]}))
    with pytest.raises(CheckpointError, match=r"MambaForCausalLM.* use vLLM or SGLang"):
        LOCAL.check(Arm(name="a", engine="local", target=target))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"hidden_size": 32}, "made for a target of width 16, but .* has 32"),
        ({"vocab_size": 128}, "made for a vocabulary of 64, but .* has 128"),
    ],
)
def test_a_head_for_another_target_is_refused(change: dict[str, int], complaint: str, target: Path, head: Path) -> None:
    (target / "config.json").write_text(json.dumps(CONFIG | change))
    with pytest.raises(CheckpointError, match=complaint):
        LOCAL.check(eagle3(target, head))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"target_hidden_size": 48}, "made for a target of width 48"),
        ({"num_aux_hidden_states": 4}, r"fc.weight is \[16, 48\]; 4 states .* take \[16, 64\]"),
        ({"draft_vocab_size": 16}, r"lm_head.weight is \[32, 16\], but config.json asks for \[16, 16\]"),
    ],
)
def test_a_head_that_contradicts_itself_is_refused(change: dict[str, int], complaint: str, target: Path, head: Path) -> None:
    config = json.loads((head / "config.json").read_text())
    (head / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(CheckpointError, match=complaint):
        LOCAL.check(eagle3(target, head))


def test_an_unknown_engine_gets_the_nearest_name() -> None:
    with pytest.raises(PlanError, match="engine 'lokal': did you mean 'local'"):
        get_engine("lokal")
    with pytest.raises(PlanError, match=r"engine '\\x1b\[2J': known: .*local"):
        get_engine("\x1b[2J")


def test_start_up_faults_are_explained() -> None:
    assert LOCAL.explain_failure(["INFO x", "breakeven: /m: nothing there.", "bye"], 2) == "It said: /m: nothing there."
    assert "Memory ran out" in (
        LOCAL.explain_failure(["RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate"], 3) or ""
    )
    assert "memory runs out" in (LOCAL.explain_failure([], -9) or "")
    assert LOCAL.explain_failure(["INFO fine"], 3) is None


def test_facts_are_read_from_the_servers_own_log() -> None:
    lines = [
        "Serving /a as b/c as m: 30 layers, dtype float32, 2 threads, context 2048, at most 8 requests at once, eagle3 with 3",
        "INFO 11-30 09:00:00 Ready on http://127.0.0.1:8000 after 4.2 s",
    ]
    facts = LOCAL.facts(Arm(name="a", engine="local"), lines, "process_resident_memory_bytes 2e9\n")
    assert facts["engine"] == "local"
    assert (facts["num_layers"], facts["dtype"], facts["num_threads"], facts["context_length"]) == (30, "float32", 2, 2048)
    assert facts["max_running_requests"] == 8
    assert facts["speculation"] == "eagle3 with 3"
    assert (facts["ready_after_s"], facts["resident_memory_bytes"]) == (4.2, 2_000_000_000)


def test_metrics_of_another_engine_are_refused() -> None:
    with pytest.raises(EngineError, match="another engine behind this URL"):
        LOCAL.parse_metrics("vllm:prompt_tokens_total 1\n", 0.0)
