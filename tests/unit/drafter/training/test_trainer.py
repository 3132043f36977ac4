from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from breakeven.drafter.training import checkpoint
from breakeven.drafter.training.checkpoint import newest_checkpoint, read_checkpoint
from breakeven.errors import BreakevenError, PlanError, StoreError

from . import toy


@pytest.mark.slow
def test_the_loss_falls_and_accuracy_rises(tmp_path):
    toy.trainer(toy.plan(tmp_path, epochs=30, log_every=10, checkpoint_every=50, evaluation={"every": 0})).run()
    lines = toy.curve(tmp_path)
    assert lines[-1]["loss"] < 0.9 * lines[0]["loss"]
    assert lines[-1]["accuracy"][0] > lines[0]["accuracy"][0]
    for line in lines:
        assert all(now >= later for now, later in zip(line["joint_accuracy"], line["joint_accuracy"][1:], strict=False))
        assert 0.5 < line["coverage"] < 0.8  # 40 of 61 tokens


def test_kept_states_change_nothing_and_spare_the_target(tmp_path):
    plain = toy.trainer(toy.plan(tmp_path / "plain"))
    plain.run()
    capture = toy.SlowCapture()
    keeping = toy.trainer(toy.plan(tmp_path / "kept"), keep=True, capture=capture)
    keeping.run()
    assert toy.curve(tmp_path / "plain") == toy.curve(tmp_path / "kept")
    assert capture.num_calls < keeping.num_steps


def test_several_batches_a_step_equal_one_large_batch(tmp_path):
    """Divided by all trained rows of the step, not each batch by its own."""
    data = toy.samples(8, length_of_all=30)
    one = toy.trainer(toy.plan(tmp_path / "one", batches={"tokens": 256}, epochs=1), data=data)
    many = toy.trainer(toy.plan(tmp_path / "many", batches={"tokens": 128, "per_step": 2}, epochs=1), data=data)
    assert (one._order.num_batches, many._order.num_batches) == (1, 2)
    one.run()
    many.run()
    mine, theirs = toy.curve(tmp_path / "one")[0], toy.curve(tmp_path / "many")[0]
    assert mine["losses"] == pytest.approx(theirs["losses"], rel=1e-5)
    assert mine["gradient_norm"] == pytest.approx(theirs["gradient_norm"], rel=1e-4)


@pytest.mark.parametrize("optimiser", [{"learning_rate": 0.01}, {"kind": "muon", "learning_rate": 0.01, "weight_decay": 0.1}])
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not(tmp_path, optimiser):
    whole = toy.trainer(toy.plan(tmp_path / "whole", optimiser=optimiser))
    whole.run()

    class Stop(Exception):
        pass

    def stop(progress):
        if progress.step >= 10:
            raise Stop

    interrupted = toy.trainer(toy.plan(tmp_path / "parts", optimiser=optimiser), tell=stop)
    with pytest.raises(Stop):
        interrupted.run()
    resumed = toy.trainer(toy.plan(tmp_path / "parts", optimiser=optimiser))
    resumed.run()
    assert toy.curve(tmp_path / "whole") == toy.curve(tmp_path / "parts")
    for name, weight in whole.kept.weights().items():
        assert torch.equal(weight, resumed.kept.weights()[name]), name


def start_program(folder: Path, log: Path, *launcher: str, **overrides: object) -> subprocess.Popen[bytes]:
    root = Path(__file__).parents[4]
    environment = os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    command = [*(launcher or (sys.executable,)), "-m", "tests.unit.drafter.training.toy", str(folder), json.dumps(overrides)]
    with log.open("wb") as output:
        return subprocess.Popen(command, env=environment, cwd=root, stdout=output, stderr=output, start_new_session=True)


def finish(process: subprocess.Popen[bytes], log: Path) -> None:
    try:
        process.wait(timeout=240)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert process.returncode == 0, log.read_text()[-3000:]


@pytest.mark.slow
def test_a_run_killed_at_random_moments_gives_the_curve_of_one_that_was_not(tmp_path):
    overrides, log = {"epochs": 40, "checkpoint_every": 4}, tmp_path / "log"
    finish(start_program(tmp_path / "whole", log, **overrides), log)
    num_lines = len(toy.curve(tmp_path / "whole"))
    num_killed = 0
    for share in (0.2, 0.45, 0.75):
        process = start_program(tmp_path / "killed", log, **overrides)
        file = tmp_path / "killed" / "metrics.jsonl"
        while process.poll() is None and not (file.exists() and file.read_bytes().count(b"\n") >= share * num_lines):
            time.sleep(0.002)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            num_killed += 1
        process.wait()
    assert num_killed == 3
    finish(start_program(tmp_path / "killed", log, **overrides), log)
    assert toy.curve(tmp_path / "killed") == toy.curve(tmp_path / "whole")
    mine, theirs = (read_checkpoint(newest_checkpoint(tmp_path / name)) for name in ("killed", "whole"))
    assert mine.step == theirs.step
    for name, weight in theirs.weights.items():
        assert torch.equal(mine.weights[name], weight), name


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        {"parallel": "ddp"},
        {"parallel": "fsdp"},
    ],
)
def test_two_processes_give_the_losses_of_one(tmp_path, overrides):
    overrides = {"epochs": 4, "batches": {"tokens": 128, "per_step": 4}} | overrides
    log = tmp_path / "log"
    finish(start_program(tmp_path / "one", log, **overrides), log)
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    finish(start_program(tmp_path / "two", log, *torchrun, **overrides), log)
    one, two = toy.curve(tmp_path / "one"), toy.curve(tmp_path / "two")
    assert len(one) == len(two)
    for mine, theirs in zip(one, two, strict=True):
        for key in mine:
            assert theirs[key] == pytest.approx(mine[key], rel=1e-5, abs=1e-5), (key, mine["step"])


def test_the_best_by_accept_length_is_kept_not_the_last(tmp_path):
    judged = []

    def evaluate(weights):
        judged.append(weights.head.clone())
        return toy.AcceptLength(mean=[1.2, 1.9, 1.4, 1.5, 1.3][min(len(judged) - 1, 4)], low=1.0, high=2.5)

    trained = toy.trainer(toy.plan(tmp_path), evaluate=evaluate).run()
    assert len(judged) >= 3
    assert (trained.best_step, trained.accept_length.mean) == (12, 1.9)
    stored = load_file(trained.best / "weights.safetensors")
    torch.testing.assert_close(stored["lm_head.weight"], judged[1])
    assert [path.name for path in trained.best.parent.iterdir()] == ["step-00000012"]


def test_without_evaluation_the_last_weights_are_kept(tmp_path):
    made = toy.trainer(toy.plan(tmp_path), evaluate=None)
    trained = made.run()
    assert (trained.best_step, trained.accept_length) == (made.num_steps, None)


def test_old_checkpoints_go_and_half_written_ones_too(tmp_path):
    (tmp_path / "checkpoints" / ".step-00000002.writing").mkdir(parents=True)
    toy.trainer(toy.plan(tmp_path, keep_checkpoints=1)).run()
    assert len(list((tmp_path / "checkpoints").iterdir())) == 1


def test_another_plan_does_not_go_on_from_this_one(tmp_path):
    toy.trainer(toy.plan(tmp_path)).run()
    with pytest.raises(PlanError, match=r"optimiser\.learning_rate: 0\.01 -> 0\.02"):
        toy.trainer(toy.plan(tmp_path, optimiser={"learning_rate": 0.02})).run()
    with pytest.raises(PlanError, match="the data"):
        toy.trainer(toy.plan(tmp_path), data=toy.samples(39)).run()


def test_a_damaged_checkpoint_is_named(tmp_path):
    toy.trainer(toy.plan(tmp_path)).run()
    newest = newest_checkpoint(tmp_path)
    (newest / "tensors.safetensors").write_bytes(b"half")
    with pytest.raises(StoreError, match="damaged"):
        toy.trainer(toy.plan(tmp_path)).run()


def test_a_full_disk_is_said_and_the_checkpoints_before_are_kept(tmp_path, monkeypatch):
    save = checkpoint.save_file

    def full(tensors, path):
        if "step-00000008" in str(path):
            raise OSError(28, "No space left on device")
        save(tensors, path)

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(StoreError, match="No space left"):
        toy.trainer(toy.plan(tmp_path), evaluate=None).run()
    assert newest_checkpoint(tmp_path).name == "step-00000004"
    monkeypatch.setattr(checkpoint, "save_file", save)
    made = toy.trainer(toy.plan(tmp_path), evaluate=None)
    assert made.run().best_step == made.num_steps


def test_a_loss_that_is_no_number_stops_the_run_before_its_checkpoint(tmp_path):
    class Poisoned(toy.SlowCapture):
        def capture(self, samples):
            packed = super().capture(samples)
            if self.num_calls > 6:
                packed.auxiliary[5] = float("nan")
            return packed

    with pytest.raises(BreakevenError, match="no longer a number within the steps up to 8"):
        toy.trainer(toy.plan(tmp_path), capture=Poisoned()).run()
    assert newest_checkpoint(tmp_path).name == "step-00000004"


def test_states_for_fewer_tokens_than_the_samples_hold_are_refused(tmp_path):
    class Truncating(toy.SlowCapture):
        def capture(self, samples):
            return super().capture(samples[:-1])

    with pytest.raises(BreakevenError, match="truncated"):
        toy.trainer(toy.plan(tmp_path), capture=Truncating()).run()


def test_batches_that_processes_cannot_share_are_refused(tmp_path):
    made = toy.trainer(toy.plan(tmp_path))
    with pytest.raises(PlanError, match="2 processes cannot share"):
        toy.Trainer(
            plan=made.plan,
            corpus=made.corpus,
            states=made._states,
            objective=made._objective,
            folder=tmp_path,
            processes=toy.Processes(count=2, device=torch.device("cpu")),
        )
