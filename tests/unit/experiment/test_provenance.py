"""Provenance names what matters and keeps secrets to itself; where arms live is decided from what fits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from breakeven.engines.base import Arm
from breakeven.errors import CheckpointError
from breakeven.experiment import placement
from breakeven.experiment.placement import lives_side_by_side, memory_bytes
from breakeven.experiment.plan import Plan
from breakeven.experiment.provenance import collect_provenance
from breakeven.experiment.secrets import names_a_secret, without_secrets
from breakeven.experiment.served import log_name, shown_command


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "VLLM_API_KEY", "--api-key=x", "MYSECRET", "db_password", "OPENAI_APIKEY", "AWS_CREDENTIALS"]
)
def test_secret_names(name: str) -> None:
    assert names_a_secret(name)


@pytest.mark.parametrize(
    "name", ["TOKENIZERS_PARALLELISM", "--max-total-tokens", "OMP_NUM_THREADS", "--tokenizer", "KEYBOARD", "MONKEY"]
)
def test_names_without_secrets(name: str) -> None:
    assert not names_a_secret(name)


def test_environment_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("VLLM_API_KEY", "hunter2")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("UNRELATED", "no")
    found = collect_provenance([])
    assert (found["env.OMP_NUM_THREADS"], found["env.CUDA_VISIBLE_DEVICES"]) == ("3", "1")
    assert "env.UNRELATED" not in found
    assert "hunter2" not in str(found)
    assert found["env.VLLM_API_KEY"] == "(hidden)"
    assert {"breakeven", "python", "cpu", "memory", "os", "package.numpy"} <= found.keys()
    assert without_secrets({"A_KEY": "x", "B": "y"}) == {"A_KEY": "(hidden)", "B": "y"}


def test_models_are_fingerprinted_once_each(make_target: Callable[..., Path]) -> None:
    folder = make_target()
    found = collect_provenance([Arm(name="a", engine="local", target=folder), Arm(name="b", engine="vllm", target=folder)])
    assert found["target"] == str(folder)
    assert len(found["target.fingerprint"]) == 16
    other = collect_provenance([Arm(name="a", engine="local", target=make_target("other", seed=1))])
    assert other["target.fingerprint"] != found["target.fingerprint"]
    with pytest.raises(CheckpointError):
        collect_provenance([Arm(name="a", engine="local", target=folder / "absent")])
    assert "target" not in collect_provenance([Arm(name="a", engine="vllm", target=folder / "absent", url="http://h")])


def test_arms_live_side_by_side_where_they_fit(
    make_plan: Callable[..., Plan], make_target: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    auto, fake, folder = make_plan(), Arm(name="f", engine="fake"), make_target()
    local = [Arm(name=name, engine="local", target=folder) for name in "ab"]
    attached = Arm(name="x", engine="vllm", url="http://h")
    assert memory_bytes(local) == 2 * (placement.BYTES_PER_SERVER + 32 * 16 * placement.BYTES_PER_WEIGHT)
    assert lives_side_by_side(auto, [fake, attached, *local]) is (
        memory_bytes(local) < placement.MAX_MEMORY_SHARE * psutil.virtual_memory().available
    )
    monkeypatch.setattr(placement, "BYTES_PER_SERVER", 10**15)
    assert not lives_side_by_side(auto, local)
    assert lives_side_by_side(auto, [fake, attached])
    assert not lives_side_by_side(auto, [Arm(name="v", engine="vllm", target=folder)])
    assert lives_side_by_side(make_plan("side_by_side: true"), local)
    assert not lives_side_by_side(make_plan("side_by_side: false"), [fake])


def test_logs_of_arms_whose_names_look_alike_do_not_meet() -> None:
    names = [log_name(launch) for launch in ("a b/1", "a-b/1", "../a/1")]
    assert len(set(names)) == 3
    assert not any("/" in name or name.startswith(".") for name in names[:2])
    assert all(Path(name).name == name for name in names)


def test_commands_can_be_pasted() -> None:
    assert shown_command(("serve", "--x", "a b"), {"A": "1 2"}) == "A='1 2' serve --x 'a b'"
