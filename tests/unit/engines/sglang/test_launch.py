from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from breakeven.checkpoints.folder import open_folder
from breakeven.checkpoints.random_head import write_random_head
from breakeven.engines.base import Arm, Speculation
from breakeven.engines.registry import get_engine
from breakeven.errors import BreakevenError, CheckpointError, UsageError

SGLANG = get_engine("sglang")
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 8,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 64,
}
RELEASES = ["0.4.6.post5", "0.4.9", "0.5.2", "0.5.3", "0.5.5", "0.5.8", "0.5.10", "0.5.11", "0.5.12.post1"]
RELEASES += ["0.5.15", "0.5.18", "0.5.23"]
Make = Callable[..., Arm]


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


@pytest.fixture
def environment(tmp_path: Path) -> Callable[[str], Path]:
    def make(version: str) -> Path:
        folder = tmp_path / f"env-{version}"
        program = folder / "bin/python"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.touch(mode=0o755)
        (folder / f"lib/python3.12/site-packages/sglang-{version}.dist-info").mkdir(parents=True, exist_ok=True)
        return folder

    return make


@pytest.fixture
def eagle3(environment: Callable[[str], Path], target: Path, head: Path) -> Make:
    def make(version: str = "0.5.23", **changes: object) -> Arm:
        speculation = dataclasses.replace(Speculation(method="eagle3", num_draft_tokens=3, drafter=head), **changes)  # type: ignore[arg-type]
        return Arm(name="e", engine="sglang", target=target, executable=environment(version), speculation=speculation)

    return make


def after(argv: tuple[str, ...], flag: str) -> str:
    assert argv.count(flag) == 1, f"{flag} in {argv}"
    return argv[argv.index(flag) + 1]


def test_the_whole_command(environment: Callable[[str], Path]) -> None:
    folder = environment("0.5.23")
    arm = Arm(
        name="a",
        engine="sglang",
        target=Path("/m"),
        served_name="m",
        dtype="bfloat16",
        max_running_requests=64,
        context_length=4096,
        num_threads=4,
        seed=7,
        executable=folder,
        tensor_parallel=8,
        pipeline_parallel=2,
        data_parallel=4,
        quantization="fp8",
        max_graph_batch=64,
        extra_flags=("--mem-fraction-static", "0.8"),
        env={"A": "1"},
    )
    command = SGLANG.launch_command(arm, 8000)
    assert command.argv == (
        *(f"{folder}/bin/python", "-m", "sglang.launch_server", "--model-path", "/m", "--host", "127.0.0.1", "--port", "8000"),
        *("--dtype", "bfloat16", "--random-seed", "7", "--enable-metrics", "--max-running-requests", "64"),
        *("--served-model-name", "m", "--context-length", "4096", "--tp-size", "8", "--pp-size", "2", "--dp-size", "4"),
        *("--quantization", "fp8", "--cuda-graph-max-bs-decode", "64", "--mem-fraction-static", "0.8"),
    )
    assert command.env == {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "4", "A": "1"}
    assert command.doubt == ""


def test_a_schedule_is_a_file_of_slots_in_the_cache(eagle3: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BREAKEVEN_CACHE", str(tmp_path / "cache"))
    arm = eagle3("0.5.23", schedule=((1, 8, 3), (9, 64, 0)))
    argv = SGLANG.launch_command(arm, 1).argv
    assert "--speculative-adaptive" in argv
    path = Path(after(argv, "--speculative-adaptive-config"))
    assert json.loads(path.read_text()) == {"1": {"candidate_steps": [3]}, "9": {"candidate_steps": [0]}}
    assert after(argv, "--speculative-num-steps") == "3"
    # the same file again, and whole again where it was damaged
    path.write_text("{")
    assert after(SGLANG.launch_command(arm, 1).argv, "--speculative-adaptive-config") == str(path)
    assert json.loads(path.read_text())["9"] == {"candidate_steps": [0]}
    assert list(path.parent.iterdir()) == [path]


def test_a_number_that_a_schedule_never_reaches_is_a_candidate_all_the_same(
    eagle3: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """SGLang refuses to start with a number of steps that no slot has; three stand for what is loaded."""
    monkeypatch.setenv("BREAKEVEN_CACHE", str(tmp_path / "cache"))
    argv = SGLANG.launch_command(eagle3("0.5.23", schedule=((1, 64, 0),)), 1).argv
    slots = json.loads(Path(after(argv, "--speculative-adaptive-config")).read_text())
    assert slots == {"1": {"candidate_steps": [0]}, "1000000": {"candidate_steps": [3]}}
    assert after(argv, "--speculative-num-steps") == "3"


def test_a_schedule_that_sglang_cannot_run_is_refused(eagle3: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BREAKEVEN_CACHE", str(tmp_path / "cache"))
    assert "0.5.13 and later have" in str(SGLANG.refusal(eagle3("0.5.12.post1", schedule=((1, 8, 3),))))
    with pytest.raises(UsageError, match="EAGLE chains only"):
        SGLANG.check(eagle3(method="ngram", drafter=None, schedule=((1, 8, 3),)))
    with pytest.raises(UsageError, match="would not agree on a number"):
        SGLANG.check(dataclasses.replace(eagle3(schedule=((1, 8, 3),)), data_parallel=2))
    (tmp_path / "file").touch()
    monkeypatch.setenv("BREAKEVEN_CACHE", str(tmp_path / "file"))
    with pytest.raises(UsageError, match="the schedule cannot be written"):
        SGLANG.check(eagle3(schedule=((1, 8, 3),)))


@pytest.mark.parametrize("version", RELEASES)
def test_a_head_is_served_as_eagle3_with_every_number_given(version: str, eagle3: Make, head: Path) -> None:
    argv = SGLANG.launch_command(eagle3(version), 1).argv
    assert after(argv, "--speculative-algorithm") == "EAGLE3"
    assert after(argv, "--speculative-draft-model-path") == str(head)
    assert after(argv, "--speculative-num-steps") == "3"
    assert after(argv, "--speculative-eagle-topk") == "1"
    assert after(argv, "--speculative-num-draft-tokens") == "4"
    assert after(argv, "--max-running-requests") == "8"


def test_a_tree(eagle3: Make) -> None:
    argv = SGLANG.launch_command(eagle3(num_draft_tokens=7, topk=4, num_steps=5), 1).argv
    shape = [after(argv, f"--speculative-{name}") for name in ("num-steps", "eagle-topk", "num-draft-tokens")]
    assert shape == ["5", "4", "8"]


@pytest.mark.parametrize("version", RELEASES)
def test_the_graph_flag_by_release(version: str, eagle3: Make) -> None:
    argv = SGLANG.launch_command(dataclasses.replace(eagle3(version), max_graph_batch=16), 1).argv
    new = version in ("0.5.15", "0.5.18", "0.5.23")
    assert after(argv, "--cuda-graph-max-bs-decode" if new else "--cuda-graph-max-bs") == "16"


@pytest.mark.parametrize("version", RELEASES)
def test_a_drafter_is_not_quantized_along_with_its_target(version: str, eagle3: Make) -> None:
    command = SGLANG.launch_command(dataclasses.replace(eagle3(version), quantization="fp8"), 1)
    if version in ("0.4.6.post5", "0.4.9", "0.5.2", "0.5.3", "0.5.5"):
        assert "--speculative-draft-model-quantization" not in command.argv
        assert "quantizes the drafter as it does the target" in command.doubt
    else:
        assert after(command.argv, "--speculative-draft-model-quantization") == "unquant"
        assert command.doubt == ""
    assert "--speculative-draft-model-quantization" not in SGLANG.launch_command(eagle3(version), 1).argv


def test_a_target_that_is_quantized_by_its_own_configuration(eagle3: Make, target: Path, head: Path) -> None:
    (target / "config.json").write_text(json.dumps(CONFIG | {"quantization_config": {"quant_method": "compressed-tensors"}}))
    argv = SGLANG.launch_command(eagle3(), 1).argv
    assert after(argv, "--speculative-draft-model-quantization") == "unquant"
    config = json.loads((head / "config.json").read_text())
    (head / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "fp8"}}))
    assert "--speculative-draft-model-quantization" not in SGLANG.launch_command(eagle3(), 1).argv


FORCED = {"SGLANG_SIMULATE_ACC_LEN": "2.5", "SGLANG_SIMULATE_ACC_METHOD": "match-expected"}


@pytest.mark.parametrize(("version", "variables"), [
    ("0.4.9", {"SIMULATE_ACC_LEN": "2.5", "SIMULATE_ACC_METHOD": "match-expected"}),
    ("0.5.2", {"SIMULATE_ACC_LEN": "2.5", "SIMULATE_ACC_METHOD": "match-expected"}),
    ("0.5.3", FORCED),
    ("0.5.5", FORCED),
    ("0.5.10", FORCED),
    ("0.5.12.post1", FORCED),
    ("0.5.15", FORCED | {"SGLANG_SIMULATE_ACC_TOKEN_MODE": "real-draft-token"}),
    ("0.5.23", FORCED | {"SGLANG_SIMULATE_ACC_TOKEN_MODE": "real-draft-token"}),
])  # fmt: skip
def test_forced_acceptance_by_release(version: str, variables: dict[str, str], eagle3: Make) -> None:
    arm = eagle3(version, forced_accept_length=2.5)
    assert SGLANG.launch_command(arm, 1).env == {"HF_HUB_OFFLINE": "1"} | variables
    assert SGLANG.refusal(arm) is None


def test_what_a_release_cannot_do_is_refused_for_the_arm_alone(eagle3: Make, target: Path) -> None:
    for version in ("0.4.6.post5", "0.4.7"):
        old = eagle3(version, forced_accept_length=2.5)
        SGLANG.check(old)
        assert f"SGLang {version} accepts drafts to order only roughly" in (SGLANG.refusal(old) or "")
    ngram = Speculation(method="ngram", num_draft_tokens=3)
    assert "SGLang 0.5.2 does not draft from n-grams" in (
        SGLANG.refusal(dataclasses.replace(eagle3("0.5.2"), speculation=ngram)) or ""
    )
    forced = dataclasses.replace(ngram, forced_accept_length=2.0)
    assert "with EAGLE drafters only" in (SGLANG.refusal(dataclasses.replace(eagle3(), speculation=forced)) or "")
    (target / "config.json").write_text(json.dumps(CONFIG | {"model_type": "kimi_k25"}))
    assert "0.5.10 and later do" in (SGLANG.refusal(eagle3("0.5.8")) or "")
    assert SGLANG.refusal(eagle3("0.5.10")) is None


@pytest.mark.parametrize(("version", "window"), [("0.5.3", True), ("0.5.8", True), ("0.5.10", False), ("0.5.23", False)])
def test_n_grams_are_looked_up_as_chains(version: str, window: bool, eagle3: Make) -> None:
    ngram = Speculation(method="ngram", num_draft_tokens=4, ngram_max=5, ngram_min=2)
    command = SGLANG.launch_command(dataclasses.replace(eagle3(version), speculation=ngram), 1)
    assert after(command.argv, "--speculative-algorithm") == "NGRAM"
    assert after(command.argv, "--speculative-num-draft-tokens") == "5"
    assert after(command.argv, "--speculative-ngram-max-bfs-breadth") == "1"
    assert ("--speculative-ngram-max-match-window-size" in command.argv) == window
    if window:
        assert after(command.argv, "--speculative-ngram-max-match-window-size") == "5"
        assert after(command.argv, "--speculative-ngram-min-match-window-size") == "2"


@pytest.mark.parametrize(("version", "doubt"), [
    ("0.5.24", "sglang 0.5.24 was never checked"),
    ("0.4.4", "sglang 0.4.4 was never checked"),
    ("0.5.13.post1", "largest batch in a graph: release 0.5.13.post1 lies between the checked ones"),
    ("0.5.23", ""),
])  # fmt: skip
def test_releases_that_nobody_checked_are_tried_and_marked(version: str, doubt: str, eagle3: Make) -> None:
    arm = dataclasses.replace(eagle3(version), max_graph_batch=16)
    found = SGLANG.launch_command(arm, 1).doubt
    assert found.startswith(doubt)
    assert bool(found) == bool(doubt)
    assert SGLANG.facts(arm, (), "").get("unverified", "") == found


@pytest.mark.parametrize(
    ("change", "error", "complaint"),
    [
        (lambda arm: dataclasses.replace(arm, target=None), UsageError, "no target"),
        (lambda arm: dataclasses.replace(arm, target=Path("/nope")), CheckpointError, "/nope: nothing there"),
        (lambda arm: with_speculation(arm, drafter=None), UsageError, "eagle3 without a drafter"),
        (lambda arm: with_speculation(arm, drafter=arm.target), CheckpointError, "expects an EAGLE-3 head"),
        (lambda arm: with_speculation(arm, method="ngram"), UsageError, "only eagle3 has one"),
        (lambda arm: with_speculation(arm, forced_accept_length=4.1), UsageError, r"4\.1.* allow 1 to 4"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    change: Callable[[Arm], Arm], error: type[BreakevenError], complaint: str, eagle3: Make
) -> None:
    SGLANG.check(eagle3())
    with pytest.raises(error, match=complaint):
        SGLANG.check(change(eagle3()))


def with_speculation(arm: Arm, **changes: object) -> Arm:
    assert arm.speculation is not None
    return dataclasses.replace(arm, speculation=dataclasses.replace(arm.speculation, **changes))  # type: ignore[arg-type]
