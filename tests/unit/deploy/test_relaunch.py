from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from breakeven.deploy.relaunch import Relaunch, changes_since, relaunch
from breakeven.engines.base import Arm, LaunchCommand
from breakeven.errors import CheckpointError, UsageError
from breakeven.experiment.provenance import collect_provenance
from breakeven.experiment.record import RunRecord
from breakeven.experiment.stored_run import read_run


def test_the_command_is_the_runs_own_with_a_new_port(make_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    folder = make_run("./serve.sh")
    record = read_run(folder)
    again = relaunch(folder, record, record.arms[0])
    command = again.command(31000)
    assert command.argv == ("./serve.sh", "--port", "31000")
    assert command.env == {"OMP_NUM_THREADS": "1", "A": "b c"}


def test_flags_come_from_the_run_not_from_todays_adapter() -> None:
    stored = LaunchCommand(argv=("vllm", "serve", "/m", "--port", "20001", "--old-flag"), env={"X": "1"})
    again = Relaunch(arm=Arm(name="a", engine="vllm"), stored=stored, recorded={"X": "0", "Y": "2"}, inherited={"X": "0", "Y": "2"})
    assert again.command(7).argv == ("vllm", "serve", "/m", "--port", "7", "--old-flag")
    assert again.command(7).env == {"X": "1", "Y": "2"}


def test_a_command_without_a_port_is_refused() -> None:
    again = Relaunch(arm=Arm(name="a", engine="vllm"), stored=LaunchCommand(argv=("vllm", "--port")), recorded={}, inherited={})
    with pytest.raises(UsageError, match="has no --port"):
        again.command(7)


def test_an_arm_that_never_became_ready(make_run: Callable[..., Path]) -> None:
    folder = make_run("./serve.sh")
    record = read_run(folder)
    with pytest.raises(UsageError, match="never became ready"):
        relaunch(folder, record, Arm(name="other", engine="vllm"))


def test_changes_name_the_drafter_first(make_record: Callable[..., RunRecord], plain: Arm) -> None:
    now = collect_provenance([plain])
    then = {**now, "drafter of plain.fingerprint": "aaaa", "cpu": "Another CPU", "drafter of other.fingerprint": "bbbb"}
    told = changes_since(replace(make_record(plain), provenance=then), plain)
    assert told[0].startswith("The drafter of plain has changed since the run (aaaa -> unknown)")
    assert any(change.startswith("cpu was Another CPU in the run") for change in told)
    assert not any("drafter of other" in change for change in told)
    assert changes_since(replace(make_record(plain), provenance=now), plain) == ()


def test_a_model_that_is_gone(make_record: Callable[..., RunRecord], plain: Arm, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="gone"):
        changes_since(make_record(plain), replace(plain, target=tmp_path / "gone"))
