from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from typer.testing import CliRunner

from breakeven.cli import app
from breakeven.deploy.compose import compose_file
from breakeven.deploy.container import Container, container
from breakeven.deploy.kubernetes import kubernetes_manifest
from breakeven.deploy.relaunch import Relaunch
from breakeven.engines.base import Arm, LaunchCommand, Speculation
from breakeven.errors import UsageError
from breakeven.experiment.record import RunRecord


def folder(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text("{}")
    (path / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    return path


@pytest.fixture
def described(tmp_path: Path, make_record: Callable[..., RunRecord], plain: Arm) -> Container:
    target = folder(tmp_path / "mo del")
    drafter = folder(target / "head")
    speculation = Speculation(method="eagle3", num_draft_tokens=3, drafter=drafter)
    arm = Arm(name="EAGLE 3!\nx: y", engine="vllm", target=target, speculation=speculation, tensor_parallel=2)
    config = json.dumps({"method": "eagle3", "model": str(drafter), "note": "$(HOME) $HOME"})
    argv = (
        "/opt/env/bin/vllm", "serve", str(target), "--host", "127.0.0.1", "--port", "20001",
        "--served-model-name", f"{target}-other", "--speculative-config", config,
    )  # fmt: skip
    again = Relaunch(
        arm=arm,
        stored=LaunchCommand(argv=argv, env={"HF_HUB_OFFLINE": "1"}),
        recorded={"OMP_NUM_THREADS": "4", "CUDA_VISIBLE_DEVICES": "3", "HF_HOME": "/h", "NVIDIA_X": "1", "MY_API_KEY": "no"},
        inherited={},
    )
    record = replace(make_record(plain), provenance={"gpu.0": "H200, 141 GB"}, facts={arm.name: {"version": "0.32.0+cu129"}})
    return container(record, again, start_timeout_s=301.0)


def test_paths_addresses_and_environment_are_the_containers(described: Container) -> None:
    assert described.image == "vllm/vllm-openai:v0.32.0"
    assert described.name == "run-eagle-3-x-y"
    assert described.argv[:7] == ("vllm", "serve", "/models/target", "--host", "0.0.0.0", "--port", "8000")
    assert described.argv[8].endswith("mo del-other"), "a longer name that begins alike is no path of the model"
    assert json.loads(described.argv[-1])["model"] == "/models/drafter"
    assert described.env == {"OMP_NUM_THREADS": "4", "HF_HUB_OFFLINE": "1"}
    assert described.num_gpus == 2


def test_compose(described: Container) -> None:
    text = compose_file(described)
    (service,) = yaml.safe_load(text)["services"].values()
    assert service["entrypoint"] == ["vllm"]
    assert "$$(HOME) $$HOME" in service["command"][-1]
    assert service["ports"] == ["127.0.0.1:8000:8000"]
    assert service["deploy"]["resources"]["reservations"]["devices"][0]["count"] == 2
    assert service["healthcheck"]["start_period"] == "301s"
    assert all(volume["read_only"] for volume in service["volumes"])
    head = [line for line in text.splitlines() if line.startswith("#")]
    assert any("image: the tag stands for the release that was measured" in line for line in head)
    assert len(head) >= 6
    assert "no" not in service["environment"].values()


def test_kubernetes(described: Container) -> None:
    deployment, service = yaml.safe_load_all(kubernetes_manifest(described))
    pod = deployment["spec"]["template"]
    (engine,) = pod["spec"]["containers"]
    assert deployment["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert "$$(HOME) $HOME" in engine["args"][-1]
    assert engine["resources"]["limits"] == {"nvidia.com/gpu": 2}
    assert engine["startupProbe"]["failureThreshold"] * engine["startupProbe"]["periodSeconds"] >= 301
    assert engine["readinessProbe"]["httpGet"] == {"path": "/health", "port": "http"}
    assert service["spec"]["ports"][0]["targetPort"] == engine["ports"][0]["name"]
    mounts = {mount["name"] for mount in engine["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["spec"]["volumes"]}


@pytest.mark.parametrize(
    ("arm", "says"),
    [
        (Arm(name="a", engine="local"), "listens on loopback only"),
        (Arm(name="a", engine="vllm", command=("./go", "{port}")), r"command of your own \(\./go\)"),
    ],
)
def test_what_no_container_can_serve(make_record: Callable[..., RunRecord], plain: Arm, arm: Arm, says: str) -> None:
    again = Relaunch(arm=arm, stored=LaunchCommand(argv=("x", "--port", "1")), recorded={}, inherited={})
    with pytest.raises(UsageError, match=says):
        container(make_record(plain), again, start_timeout_s=1.0)


def test_a_schedule_that_sglang_reads_from_a_file_goes_with_the_container(
    tmp_path: Path, make_record: Callable[..., RunRecord], plain: Arm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BREAKEVEN_CACHE", str(tmp_path / "cache"))
    speculation = Speculation(method="eagle3", num_draft_tokens=3, schedule=((1, 8, 3), (9, 64, 0)))
    arm = Arm(name="a", engine="sglang", target=folder(tmp_path / "model"), speculation=speculation, engine_version="0.5.23")
    argv = ("/opt/python", "-m", "sglang.launch_server", "--speculative-adaptive-config", "/gone/schedules/1.json", "--port", "1")
    again = Relaunch(arm=arm, stored=LaunchCommand(argv=argv), recorded={}, inherited={})
    described = container(make_record(plain), again, start_timeout_s=1.0)
    composed = yaml.safe_load(compose_file(described))
    (service,) = composed["services"].values()
    place = service["command"][service["command"].index("--speculative-adaptive-config") + 1]
    assert service["configs"] == [{"source": "schedule", "target": place}]
    assert json.loads(composed["configs"]["schedule"]["content"]) == {"1": {"candidate_steps": [3]}, "9": {"candidate_steps": [0]}}
    config_map, deployment, _ = yaml.safe_load_all(kubernetes_manifest(described))
    pod = deployment["spec"]["template"]["spec"]
    (mount,) = (one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "schedule")
    (volume,) = (one for one in pod["volumes"] if one["name"] == "schedule")
    assert volume["configMap"]["name"] == config_map["metadata"]["name"]
    assert {f"{mount['mountPath']}/{name}" for name in config_map["data"]} == {place}


def test_paths_of_the_machine_that_no_container_has_are_to_be_checked(described: Container) -> None:
    left = replace(
        described,
        argv=("python3", "--chat-template", "/srv/a/chat.jinja", "--root-path", "/v1", "--model", "/models/target"),
        env={"PYTHONPATH": "/opt/stand/ins:/opt/b/c", "RATIO": "1/2/3", "URL": "http://h/a/b"},
    )
    for text in (compose_file(left), kubernetes_manifest(left)):
        told = [line for line in text.splitlines() if line.startswith("#   paths: ")]
        assert told == [
            "#   paths: --chat-template has /srv/a/chat.jinja as on the machine of the run; mount it or leave it out",
            "#   paths: PYTHONPATH has /opt/stand/ins, /opt/b/c as on the machine of the run; mount it or leave it out",
        ]


def test_what_has_no_effect_on_a_manifest_is_refused(tmp_path: Path) -> None:
    """They start nothing: a port or --detach that is passed over would look as if a server ran."""
    for option in (("--port", "9000"), ("--detach",)):
        for form in ("--compose", "--kubernetes"):
            with pytest.raises(UsageError, match="start nothing; leave out --detach and --port"):
                CliRunner().invoke(app, ["serve", "runs/x", form, str(tmp_path / "a.yaml"), *option], catch_exceptions=False)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("there", ["compose", "kubernetes"])
def test_of_two_manifests_either_both_are_written_or_none(
    tmp_path: Path, described: Container, monkeypatch: pytest.MonkeyPatch, there: str
) -> None:
    arm = SimpleNamespace(why="the winner", notes=(), arm=SimpleNamespace(name="a"))
    prepared = SimpleNamespace(record=None, relaunch=None, plan=SimpleNamespace(start_timeout_s=1.0), choice=arm, warnings=())
    monkeypatch.setattr("breakeven.deploy.serving.prepare", lambda *_, **__: prepared)
    monkeypatch.setattr("breakeven.deploy.container.container", lambda *_, **__: described)
    command = ["serve", "runs/x", "--compose", str(tmp_path / "compose"), "--kubernetes", str(tmp_path / "kubernetes")]
    (tmp_path / there).write_text("mine")
    with pytest.raises(UsageError, match=f"{there}: exists"):
        CliRunner().invoke(app, command, catch_exceptions=False)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [there]
    (tmp_path / there).unlink()
    assert CliRunner().invoke(app, command, catch_exceptions=False).exit_code == 0
    assert yaml.safe_load((tmp_path / "compose").read_text())["services"]
