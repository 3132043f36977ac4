"""`breakeven train` from end to end on a tiny target: data in, a folder out that the embedded engine's reader takes."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from typer.testing import CliRunner

from breakeven.checkpoints.folder import open_folder
from breakeven.cli import app, main
from breakeven.drafter.evaluation.result import Evaluation, Figures
from breakeven.drafter.export import writing
from breakeven.drafter.export.reading import read_head
from breakeven.drafter.folder_lock import folder_lock
from breakeven.drafter.training import training
from breakeven.drafter.training.held_out import judged_on
from breakeven.errors import CheckpointError, DataError, PlanError, StoreError

PAGE = (Path(__file__).parents[4] / "docs" / "training.md").read_text(encoding="utf-8")
COMMAND = shlex.split(re.findall(r"^    breakeven (train .*)$", PAGE, re.MULTILINE)[0])
PLAN = {
    "target": "target",
    "data": "train.jsonl",
    "out": "out",
    "epochs": 6,
    "log_every": 2,
    "checkpoint_every": 2,
    "batches": {"tokens": 256},
    "head": {"draft_vocab_size": 64},
    "objective": {"steps": 3},
    "evaluation": {"every": 4, "num_prompts": 4, "max_answer_tokens": 16},
    "optimiser": {"learning_rate": 0.003},
}


@pytest.fixture
def workplace(make_target, talking_target, tmp_path, monkeypatch):
    vocab_size = json.loads((talking_target / "config.json").read_text())["vocab_size"]
    shape = {"num_hidden_layers": 8, "head_dim": 16, "vocab_size": vocab_size}  # no kernel of a GPU takes smaller heads
    folder = make_target("target", **shape, eos_token_id=258, max_position_embeddings=512)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(talking_target / name, folder / name)
    monkeypatch.chdir(tmp_path)
    Path("questions.txt").write_text("".join(f"What is {thing} made of?\n" for thing in THINGS))
    run("data", "prompts", "--from", "questions.txt", "--no-combinations", "--held-out", "0.3", "--out", "prompts.jsonl")
    run("data", "answers", "prompts.jsonl", "--target", "target", "--max-tokens", "20", "--out", "train.jsonl")
    return tmp_path


THINGS = ("paper", "glass", "a cloud", "bread", "soap", "sand", "a wall", "rope", "ink", "steel", "wool", "amber")


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def write_plan(**overrides: object) -> None:
    Path("train.yaml").write_text(yaml.safe_dump(PLAN | overrides))


def test_a_plan_and_data_become_a_folder_that_drafts(workplace):
    write_plan()
    result = json.loads(run("train", "train.yaml", "--json"))
    assert result["accept_length_low"] is None or result["accept_length_low"] <= result["accept_length"]
    assert (result["draft_vocab_size"], result["num_draft_tokens"]) == (64, 3)
    head = read_head(workplace / "out" / "drafter", open_folder(workplace / "target"))
    assert head.config.auxiliary_layers == (2, 4, 5)
    provenance = json.loads((workplace / "out" / "drafter" / "provenance.json").read_text())
    assert provenance["training"]["plan"]["seed"] == 0
    assert provenance["training"]["data_sha256"] == hashlib.sha256(Path("train.jsonl").read_bytes()).hexdigest()
    assert provenance["target"]["template_sha256"] is not None
    assert provenance["metrics"]["without_loops"]["accept_length"] == pytest.approx(result["accept_length"])
    lines = [json.loads(line) for line in (workplace / "out" / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["step"] == result["num_steps"]
    # the same command again has nothing left to train, and says the same
    again = json.loads(run("train", "train.yaml", "--json"))
    assert again == result


def test_a_training_that_goes_on_says_so_and_another_plan_is_refused_before_the_target_is_loaded(workplace, monkeypatch):
    write_plan(epochs=1)
    first = CliRunner().invoke(app, ["train", "train.yaml"], catch_exceptions=False)
    assert "going on from" not in first.output
    told = CliRunner().invoke(app, ["train", "train.yaml"], catch_exceptions=False)
    assert f"going on from step {json.loads(Path('out/training.json').read_text())['num_steps']}" in told.output
    assert "of held-out ones, from which it was not chosen" in told.output
    write_plan(epochs=1, seed=5)
    monkeypatch.setattr(training, "open_parts", lambda *_: pytest.fail("opened before the plan was compared"))
    with pytest.raises(PlanError, match=r"seed: 0 -> 5"):
        CliRunner().invoke(app, ["train", "train.yaml"], catch_exceptions=False)


def test_two_trainings_do_not_write_to_one_folder(workplace):
    write_plan(epochs=1)
    with folder_lock(workplace / "out", doing="training", advice=""), pytest.raises(StoreError) as caught:
        run("train", "train.yaml")
    out = workplace / "out"
    assert str(caught.value) == f"{out}: another process is training there; wait for it, or name another folder in out"
    assert not (workplace / "out" / "checkpoints").exists()
    run("train", "train.yaml")


@pytest.mark.gpu
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_on_a_gpu_a_run_that_was_stopped_goes_on_as_if_it_had_not(workplace, compiled, kind):
    """And nothing that was asked for is given up."""
    common = {"device": "cuda", "compiled": compiled, "keep_states": "never", "max_steps": 6, "keep_checkpoints": 9}
    common["evaluation"] = {"every": 0, "num_prompts": 2, "max_answer_tokens": 8}
    common["optimiser"] = PLAN["optimiser"] | {"kind": kind}
    for out in ("whole", "parts"):
        write_plan(out=out, **common)
        result = json.loads(run("train", "train.yaml", "--json"))
        assert not [note for note in result["notes"] if "not used" in note]
        if out == "parts":
            # as a kill after step 2 leaves it
            for step in (4, 6):
                shutil.rmtree(f"parts/checkpoints/step-{step:08d}", ignore_errors=True)
            shutil.rmtree("parts/best", ignore_errors=True)
            assert [path.name for path in Path("parts/checkpoints").iterdir()] == ["step-00000002"]
            run("train", "train.yaml")
    mine, theirs = (load_file(f"{out}/checkpoints/step-00000006/tensors.safetensors") for out in ("parts", "whole"))
    assert mine.keys() == theirs.keys()
    assert [name for name, tensor in theirs.items() if not torch.equal(mine[name], tensor)] == []


def test_a_trained_head_can_be_gone_on_from(workplace):
    write_plan()
    run("train", "train.yaml")
    first = read_head(workplace / "out" / "drafter", open_folder(workplace / "target"))
    plan = {key: value for key, value in PLAN.items() if key != "head"} | {
        "out": "second",
        "start_from": "out/drafter",
        "epochs": 1,
    }
    plan["optimiser"] = {"learning_rate": 1e-9}
    Path("train.yaml").write_text(yaml.safe_dump(plan))
    told = CliRunner().invoke(app, ["train", "train.yaml"], catch_exceptions=False)
    assert told.exit_code == 0, told.output
    second = read_head(workplace / "second" / "drafter", open_folder(workplace / "target"))
    torch.testing.assert_close(second.weights.fc, first.weights.fc, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(second.weights.head, first.weights.head, rtol=1e-2, atol=1e-2)
    assert torch.equal(second.weights.target_ids, first.weights.target_ids)


def test_eagle_3_1_and_bfloat16_train_too(workplace):
    write_plan(precision="bfloat16", head={"draft_vocab_size": 64, "fc_norm": True, "norm_output": True}, epochs=2)
    run("train", "train.yaml")
    head = read_head(workplace / "out" / "drafter", open_folder(workplace / "target"))
    assert (head.config.fc_norm, head.config.norm_output) == (True, True)


def test_the_pages_plan_trains(workplace, monkeypatch):
    placed = workplace / "cache" / "models" / "smollm2-135m-instruct"
    placed.parent.mkdir(parents=True)
    (workplace / "target").rename(placed)
    monkeypatch.setenv("BREAKEVEN_CACHE", str(workplace / "cache"))
    Path("train.yaml").write_text(PAGE.split("```yaml\n")[1].split("```")[0])
    assert run(*COMMAND).startswith(str(workplace / "drafter-run" / "drafter"))


def test_stored_states_train_to_the_same_losses(workplace):
    write_plan(evaluation={"every": 0, "num_prompts": 2, "max_answer_tokens": 8})
    run("train", "train.yaml")
    run("data", "states", "train.jsonl", "--target", "target", "--out", "states", "--dtype", "float32", "--device", "cpu")
    write_plan(evaluation={"every": 0, "num_prompts": 2, "max_answer_tokens": 8}, states="states", out="offline")
    run("train", "train.yaml")

    def losses(folder: str) -> list[float]:
        return [json.loads(line)["loss"] for line in (workplace / folder / "metrics.jsonl").read_text().splitlines()]

    assert losses("offline") == pytest.approx(losses("out"), rel=1e-5)
    write_plan(states="states", out="other", head={"auxiliary_layers": [1, 2, 3]})
    with pytest.raises(DataError, match="entering the layers"):
        run("train", "train.yaml")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"learning_rte": 1}, "unknown key 'learning_rte'"),
        ({"optimiser": {"learning_rte": 1}}, "did you mean 'learning_rate'"),
        ({"epochs": "many"}, "epochs is 'many'"),
        ({"checkpoint_every": 3}, "expected a multiple of it"),
        ({"objective": {"steps": 3, "step_weights": [1.0]}}, "step_weights has 1 entries"),
        ({"batches": {"tokens": 100}}, "batches.tokens is 100"),
        ({"data": "absent.jsonl"}, "absent.jsonl"),
        ({"target": "absent"}, "absent"),
        ({"head": {"draft_vocab_size": 9999}}, "draft_vocab_size is 9999"),
        ({"head": {"auxiliary_layers": [1, 2, 9]}}, "0 to 7"),
        ({"head": {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}}, "dynamic"),
        ({"start_from": "target", "head": {"fc_norm": True}}, "remove the keys under head"),
        ({"device": "cuda"}, "no GPU"),
    ],
)
def test_bad_plans_are_one_clear_error(workplace, overrides, message, capsys, monkeypatch):
    if torch.cuda.is_available() and "device" in overrides:
        pytest.skip("there is a GPU")
    write_plan(**overrides)
    monkeypatch.setattr(sys, "argv", ["breakeven", "train", "train.yaml"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert message in shown
    assert "Traceback" not in shown


def test_data_without_held_out_prompts_train_and_say_what_is_not_known(workplace):
    records = [json.loads(line) for line in Path("train.jsonl").read_text().splitlines()]
    for record in records:
        if "split" in record:
            record["split"] = "train"
    Path("train.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    write_plan(epochs=1)
    result = json.loads(run("train", "train.yaml", "--json"))
    assert result["accept_length"] is None
    assert any("no held-out prompts" in note for note in result["notes"])


def test_a_training_that_is_under_way_is_told_before_the_target_is_loaded(workplace, monkeypatch):
    write_plan(epochs=1)
    monkeypatch.setattr(training, "open_parts", lambda *_: pytest.fail("opened before the lock was tried"))
    with (
        folder_lock(workplace / "out", doing="training", advice=""),
        pytest.raises(StoreError, match="another process is training"),
    ):
        CliRunner().invoke(app, ["train", "train.yaml"], catch_exceptions=False)


def test_other_data_of_the_same_size_do_not_go_on(workplace):
    """Counts alone were compared: answers made again went on under the checkpoints of the first."""
    write_plan(epochs=1, max_steps=2)
    run("train", "train.yaml", "--json")
    lines = Path("train.jsonl").read_bytes().splitlines(keepends=True)
    Path("train.jsonl").write_bytes(b"".join([lines[0], *reversed(lines[1:])]))
    with pytest.raises(PlanError, match="the data's sha256"):
        CliRunner().invoke(app, ["train", "train.yaml"], catch_exceptions=False)


def test_the_drafter_of_an_earlier_end_stays_where_a_new_one_cannot_be_written(workplace, monkeypatch):
    write_plan(epochs=1, max_steps=2)
    run("train", "train.yaml")
    before = (workplace / "out" / "drafter" / "model.safetensors").read_bytes()

    def full(*_args, **_kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(writing, "save_file", full)
    with pytest.raises(CheckpointError, match="No space left"):
        CliRunner().invoke(app, ["train", "train.yaml"], catch_exceptions=False)
    assert (workplace / "out" / "drafter" / "model.safetensors").read_bytes() == before


def test_what_makes_an_accept_length_doubtful_stands_beside_it(workplace):
    write_plan(epochs=1, max_steps=2)
    told = " ".join(run("train", "train.yaml").split())
    result = json.loads(Path("out/training.json").read_text())
    assert 0 < result["num_held_out"] <= 4
    assert f"over {result['num_held_out']} prompt" in told
    assert ("looping answers left out" in told) == result["without_loops"]
    assert any("use at least 10" in doubt or "no interval" in doubt for doubt in result["doubts"])
    for doubt in result["doubts"]:
        assert f"note: {doubt}" in told


def test_answers_that_all_loop_are_not_said_to_be_left_out():
    figures = {"num_prompts": 3, "num_rounds": 9, "num_drafted": 27, "num_accepted": 9, "joint": (), "conditional": ()}
    interval = {"accept_length_low": None, "accept_length_high": None}
    none = Figures(**(figures | {"num_prompts": 0, "num_rounds": 0}), accept_length=None, **interval)
    some = Figures(**figures, accept_length=2.0, **interval)
    common = {"num_draft_tokens": 3, "draft_vocab_size": 9, "auxiliary_layers": (1, 2, 3), "num_answers": 3, "num_unfinished": 0}
    rest = {"num_answer_tokens": 18, "unknown_token_share": 0.0, "unknown_rejection_share": 0.0, "by_kind": {}, "by_context": {}}
    assert judged_on(Evaluation(overall=some, without_loops=none, num_looping=3, **common, **rest)) is some
    mixed = Evaluation(overall=some, without_loops=some.model_copy(), num_looping=0, **common, **rest)
    assert judged_on(mixed) is mixed.without_loops
