"""`breakeven data states`: the page's command on answers made here, again after it is done, and bad input."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from breakeven.checkpoints.folder import open_folder
from breakeven.cli import app, main
from breakeven.drafter.capture.capture import Capture
from breakeven.drafter.capture.stored import StoredStates
from breakeven.drafter.data.reading import read_samples
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.drafter.training.head_shape import head_config
from breakeven.drafter.training.plan_schema import HeadPlan

PAGE = (Path(__file__).parents[4] / "docs" / "training-data.md").read_text(encoding="utf-8")
COMMAND = shlex.split(re.findall(r"^    breakeven (data states .*)$", PAGE, re.MULTILINE)[0])


@pytest.fixture
def target(make_target, talking_target, tmp_path, monkeypatch):
    """The demo's model as far as its name goes, deep enough for default layers; and its own answers to a few prompts."""
    vocab_size = json.loads((talking_target / "config.json").read_text())["vocab_size"]
    folder = make_target("deep", num_hidden_layers=8, vocab_size=vocab_size, eos_token_id=258, max_position_embeddings=512)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(talking_target / name, folder / name)
    placed = tmp_path / "cache" / "models" / "smollm2-135m-instruct"
    placed.parent.mkdir(parents=True)
    folder.rename(placed)
    monkeypatch.setenv("BREAKEVEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("questions.txt").write_text(
        "".join(f"What is {thing} made of?\n" for thing in ("paper", "glass", "a cloud", "bread", "soap"))
    )
    run("prompts", "--from", "questions.txt", "--no-combinations", "--held-out", "0.0", "--out", "prompts.jsonl")
    run("answers", "prompts.jsonl", "--target", str(placed), "--max-tokens", "20", "--out", "train.jsonl")
    return placed


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["data", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_pages_command_stores_what_the_target_gives(target):
    told = run(*COMMAND[1:])
    assert "states of 5 samples in 1 shards, 1 of them written now" in told
    samples = list(read_samples(Path("train.jsonl"), split="train", target=TargetFiles.from_folder(target)))
    capture = Capture.from_folder(target, (2, 4, 5), device="cpu", dtype=torch.float32)
    stored, expected = StoredStates(Path("states")).capture(samples), capture.capture(samples)
    assert torch.equal(stored.auxiliary, expected.auxiliary)
    assert torch.equal(stored.last, expected.last)
    assert torch.equal(stored.loss_mask, expected.loss_mask)
    assert "all of them were there" in run(*COMMAND[1:])


def test_a_dry_run_says_the_size_and_stores_nothing(target):
    done = CliRunner().invoke(app, [*COMMAND, "--dry-run", "--json", "--layers", "0,3,7"], catch_exceptions=False)
    found = json.loads(done.stdout)
    assert found["state_bytes"] == found["num_tokens"] * 4 * 32 * 4 < found["bytes_to_write"]
    assert (found["layers"], found["dry_run"], found["shards_written"]) == ([0, 3, 7], True, 0)
    assert f"{found['num_tokens']} tokens x 4 x 32 x float32" in done.stderr
    assert not Path("states").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--layers", "2,15"], "three different layer inputs of 0 to 7"),
        (["--layers", "5,4,2"], "three different layer inputs of 0 to 7"),
        (["--layers", "low,middle,high"], "expected three numbers"),
        (["--device", "gpu"], "expected cpu, cuda or cuda:N"),
        (["--split", "held_out"], "no samples on the held_out side"),
        (["--device", "auto", "--run-by", "own"], "one device"),
    ],
)
def test_bad_input_is_one_clear_error(target, monkeypatch, capsys, arguments, message):
    monkeypatch.setattr(sys, "argv", ["breakeven", *COMMAND, *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    told = " ".join(capsys.readouterr().err.split())
    assert ended.value.code == 2
    assert message in told
    assert "Traceback" not in told


def test_answers_of_another_target_are_refused(target, make_target, monkeypatch, capsys):
    other = make_target("other", num_hidden_layers=8, vocab_size=264, seed=3)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(target / name, other / name)
    monkeypatch.setattr(sys, "argv", ["breakeven", "data", "states", "train.jsonl", "--target", str(other), "--out", "states"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "made with the target smollm2-135m-instruct" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("num_layers", [4, 5, 6, 9])
def test_the_layers_taken_are_those_that_a_head_is_trained_on(make_target, talking_target, tmp_path, monkeypatch, num_layers):
    """Of a target of four layers they were (2, 2, 1), which it refused, where training took (1, 2, 3)."""
    vocab_size = json.loads((talking_target / "config.json").read_text())["vocab_size"]
    folder = make_target("shallow", num_hidden_layers=num_layers, vocab_size=vocab_size, eos_token_id=258)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(talking_target / name, folder / name)
    monkeypatch.chdir(tmp_path)
    turns = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}]
    Path("log.jsonl").write_text(json.dumps({"messages": turns}) + "\n")
    run("import", "log.jsonl", "--target", str(folder), "--out", "train.jsonl", "--held-out", "0")
    told = run("states", "train.jsonl", "--target", str(folder), "--out", "states", "--device", "cpu", "--dry-run", "--json")
    assert tuple(json.loads(told)["layers"]) == head_config(open_folder(folder), HeadPlan()).auxiliary_layers
