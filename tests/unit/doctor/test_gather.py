"""From what the user names to evidence: every input, alone and together, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.doctor.broken import SGLANG, VLLM, Deployment
from tests.unit.doctor.folders import make_target, portable
from typer.testing import CliRunner

from breakeven.cli import app
from breakeven.doctor.gather import Inputs, gather
from breakeven.errors import CheckpointError, UsageError


def test_folders_that_the_command_names_are_examined_if_they_are_here(tmp_path: Path) -> None:
    draft, target = portable().write(tmp_path), make_target().write(tmp_path)
    command = SGLANG.replace("DRAFT", str(draft)).replace("TARGET", str(target))
    here = gather(Inputs(launch=command))
    assert here.draft is not None
    assert here.target is not None
    assert (here.draft.folder.path, here.target.path, here.engine) == (draft, target, "sglang")
    elsewhere = gather(Inputs(launch=SGLANG))
    assert (elsewhere.draft, elsewhere.target) == (None, None)


def test_the_release_comes_from_the_flag_the_image_or_the_log(tmp_path: Path) -> None:
    image = f"docker run lmsysorg/sglang:v0.5.9 {SGLANG}"
    assert str(gather(Inputs(launch=image)).version) == "0.5.9"
    assert str(gather(Inputs(launch=image, engine_version="0.5.10")).version) == "0.5.10"
    recorded = Path(__file__).parents[1] / "engines" / "vllm" / "recorded" / "0.32.0-cpu-eagle3.log"
    read = gather(Inputs(logs=(recorded,)))
    assert (read.engine, str(read.version)) == ("vllm", "0.32.0")
    assert read.log_facts["auxiliary_layers"]


def test_a_plan_names_everything(tmp_path: Path) -> None:
    draft, target = portable().write(tmp_path), make_target().write(tmp_path)
    (tmp_path / "plan.yaml").write_text(
        f"""
target: {target}
engine: vllm
load: [{{concurrency: 1}}]
workload: {{max_tokens: 16}}
arms:
  plain: {{}}
  drafts: {{speculation: {{method: eagle3, drafter: {draft}, num_draft_tokens: 3}}}}
"""
    )
    found = gather(Inputs(plan=tmp_path / "plan.yaml"))
    assert found.draft is not None
    assert (found.draft.folder.path.name, found.engine) == ("draft", "vllm")
    with pytest.raises(UsageError, match="expected one of the plan's arms: plain, drafts"):
        gather(Inputs(plan=tmp_path / "plan.yaml", arm="other"))


def test_answers_as_tokens_text_and_messages(tmp_path: Path) -> None:
    lines = [
        {"output_ids": [1, 2, 2]},
        {"token_ids": [5, 6, 7], "loss_mask": [False, False, True]},
        {"messages": [{"role": "user", "content": "abc"}, {"role": "assistant", "content": "de"}]},
        "fg",
    ]
    file = tmp_path / "answers.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    answers = gather(Inputs(answers=file), encode=lambda text: [ord(char) for char in text]).answers
    assert answers is not None
    assert answers.counts == {1: 1, 2: 2, 7: 1, 100: 1, 101: 1, 102: 1, 103: 1}
    with pytest.raises(UsageError, match=r"answers\.jsonl:3: answers as text take the target's tokenizer"):
        gather(Inputs(answers=file))


def test_a_training_log_is_known_from_a_servers(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("step 90 train_tau_sim=1.1 train_acc=0.1\nstep 100 train_tau_sim=1.2765 train_acc=0.1345\n")
    assert gather(Inputs(logs=(tmp_path / "train.log",))).training == {"train_tau_sim": 1.2765, "train_acc": 0.1345}


@pytest.mark.parametrize(
    ("inputs", "complaint"),
    [
        (Inputs(), "nothing to examine"),
        (Inputs(engine="vllm"), "nothing to examine"),
        (Inputs(launch=VLLM, plan=Path("plan.yaml")), "give one of them"),
        (Inputs(launch=VLLM, engine="sglang"), "the launch command starts vllm"),
        (Inputs(launch=VLLM, engine="tensorrt"), "expected one of vllm, sglang"),
        (Inputs(launch=VLLM, engine_version="latest"), "--engine-version: 'latest' is not a release number"),
    ],
)
def test_inputs_that_make_no_sense(inputs: Inputs, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        gather(inputs)


def test_exit_codes_and_json(tmp_path: Path) -> None:
    healthy = Deployment().inputs(tmp_path / "a")
    done = CliRunner().invoke(app, ["doctor", "--draft", str(healthy.draft), "--target", str(healthy.target), "--json"])
    result = json.loads(done.output)
    assert done.exit_code == 0
    assert result["findings"] == []
    assert {"algorithm-mismatch", "memory-does-not-fit"} <= {one["code"] for one in result["unchecked"]}
    broken = Deployment()
    broken.draft.config["tie_word_embeddings"] = True
    inputs = broken.inputs(tmp_path / "b")
    done = CliRunner().invoke(app, ["doctor", "--draft", str(inputs.draft)])
    assert done.exit_code == 1
    assert "lm-head-tied" in done.output
    assert "Shows as: sglang: accept length 1.00" in " ".join(done.output.split()) or "sglang: accept length 1.00" in done.output
    missing = CliRunner().invoke(app, ["doctor", "--draft", str(tmp_path / "nowhere")])
    assert isinstance(missing.exception, CheckpointError)
    assert missing.exception.exit_code == 2


def test_an_unknown_engine_is_named_with_those_that_are_known() -> None:
    with pytest.raises(UsageError, match=r"--engine 'foo': expected one of vllm, sglang"):
        gather(Inputs(engine="foo"))
