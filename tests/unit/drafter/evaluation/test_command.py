"""`breakeven eval` from files to figures."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from breakeven.cli import app
from breakeven.drafter.evaluation.prompts import training_lines
from breakeven.drafter.evaluation.result import Evaluation
from breakeven.errors import BreakevenError, CheckpointError, DataError, PromptsError, UsageError

VOCAB = {"vocab_size": 264}


def line(text: str, **more: str) -> str:
    return json.dumps({"messages": [{"role": "user", "content": text}], **more})


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join([line("one", kind="a"), "", line("two", split="train"), line("three", kind="b", split="held_out")]))
    return path


def run(*arguments: object, fails_with: type[BreakevenError] | None = None) -> str:
    done = CliRunner().invoke(app, ["eval", *map(str, arguments)])
    if fails_with is not None:
        assert isinstance(done.exception, fails_with), done.output
        return str(done.exception)
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def test_held_out_prompts_are_judged_and_training_prompts_are_not(talking_target, make_head, prompts):
    head = make_head(**VOCAB)
    options = ("--target", talking_target, "--draft", head, "--prompts", prompts, "--max-tokens", 12, "--num-draft-tokens", 2)
    evaluation = Evaluation.model_validate_json(run(*options, "--json"))
    assert evaluation.num_answers == 2
    assert set(evaluation.by_kind) == {"a", "b"}
    assert (evaluation.num_draft_tokens, evaluation.draft_vocab_size, evaluation.auxiliary_layers) == (2, 88, (1, 2, 3))
    assert (evaluation.target, evaluation.drafter, evaluation.dtype) == ("talking", "head", "float32")
    assert evaluation.overall.num_rounds > 0
    assert evaluation.overall.accept_length is not None
    shown = run(*options)
    assert f"Accept length {evaluation.overall.accept_length:.2f}" in shown
    assert "kind b" in shown
    assert "outside the draft vocabulary" in shown


@pytest.mark.gpu
def test_a_gpu_counts_what_a_cpu_does(talking_target, make_head, prompts):
    """In float32, where only a near-tie could differ; the three prompts have none."""
    options = ("--target", talking_target, "--draft", make_head(**VOCAB), "--prompts", prompts, "--max-tokens", 12, "--json")
    on_cpu, on_gpu = (json.loads(run(*options, "--device", device)) for device in ("cpu", "cuda"))
    assert on_gpu["overall"] == on_cpu["overall"]
    assert on_gpu["by_kind"] == on_cpu["by_kind"]


def test_without_a_file_there_are_prompts_of_our_own(talking_target, make_head, monkeypatch):
    monkeypatch.setattr("breakeven.loadgen.prompts.builtin_prompts", lambda: ())
    stated = run("--target", talking_target, "--draft", make_head(**VOCAB), "--max-tokens", 8, "--json")
    assert json.loads(stated)["num_answers"] == 0
    assert "no answer took a round" in stated


def test_bfloat16_comes_with_its_doubt(talking_target, make_head, prompts):
    options = ("--target", talking_target, "--draft", make_head(**VOCAB), "--prompts", prompts, "--max-tokens", 6)
    stated = run(*options, "--dtype", "bfloat16", "--json")
    assert "near-ties" in stated


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (line("one", split="train"), DataError, "all of its 1 prompts are for training"),
        ("not json", PromptsError, "line 1"),
        ("", PromptsError, "prompts"),
        (line("x" * 300), PromptsError, "has 302 tokens; the target's context holds 128"),
        (line("x" * 100), UsageError, "102 tokens, which with 128 of answer and 3 drafts needs 233 positions; the target has 128"),
    ],
)
def test_prompts_that_judge_nothing_are_refused(talking_target, make_head, tmp_path, content, error, message):
    path = tmp_path / "bad.jsonl"
    path.write_text(content)
    assert message in run("--target", talking_target, "--draft", make_head(**VOCAB), "--prompts", path, fails_with=error)


def test_what_does_not_fit_is_refused_before_anything_is_generated(talking_target, make_head, prompts, monkeypatch):
    monkeypatch.setattr("breakeven.drafter.evaluation.evaluating.greedy_answers", lambda *_a, **_k: pytest.fail("generated"))
    common = ("--target", talking_target, "--prompts", prompts)
    assert "vocab_size is 97" in run(*common, "--draft", make_head(), fails_with=CheckpointError)
    assert "EAGLE-3" in run(*common, "--draft", talking_target, fails_with=CheckpointError)
    assert "no CUDA device" in run(*common, "--draft", make_head("b", **VOCAB), "--device", "cuda:7", fails_with=UsageError)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        training_lines(tmp_path / "nothing.jsonl")
