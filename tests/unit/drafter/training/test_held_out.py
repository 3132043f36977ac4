"""What checkpoints are judged on: held-out prompts only, each once, the same in every run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from breakeven.drafter.data.samples import Sample
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.drafter.data.training_records import Header
from breakeven.drafter.evaluation.prompts import RenderedPrompt
from breakeven.drafter.training.held_out import held_out_prompts, prepare_judge
from breakeven.drafter.training.plan_schema import EvaluationPlan
from breakeven.errors import DataError


@pytest.fixture
def files(talking_target):
    return TargetFiles.from_folder(talking_target)


def write_data(path: Path, splits: list[str]) -> Path:
    lines = [Header(target=None, settings={}).line().decode()]
    for index, split in enumerate(splits):
        for answer in range(2):  # two answers to each prompt
            record = {
                "id": f"p{index}-{answer}",
                "prompt_id": f"p{index}",
                "kind": "toy",
                "topic": None,
                "split": split,
                "messages": [],
                "tokens": "exact",
                "token_ids": [5, 6, 7 + index, 8, 9, 10 + answer],
                "num_prompt_tokens": 3,
                "sampling": {"temperature": 0.0, "top_p": 1.0},
                "finish_reason": "stop",
                "looping": None,
            }
            lines.append(json.dumps(record) + "\n")
    path.write_text("".join(lines))
    return path


def test_only_held_out_prompts_each_once_and_no_more_than_asked(files, tmp_path):
    data = write_data(tmp_path / "train.jsonl", ["train", "held_out"] * 10)
    plan = EvaluationPlan(num_prompts=6, max_answer_tokens=16)
    prompts = held_out_prompts(data, files, plan, 0)
    assert len(prompts) == len({prompt.prompt_id for prompt in prompts}) == 6
    assert all(int(prompt.prompt_id[1:]) % 2 for prompt in prompts)
    assert all(len(prompt.token_ids) == 3 for prompt in prompts)
    assert prompts == held_out_prompts(data, files, plan, 0)
    assert prompts != held_out_prompts(data, files, plan, 1)


def test_prompts_that_leave_no_room_for_an_answer_are_left_out(files, tmp_path):
    data = write_data(tmp_path / "train.jsonl", ["held_out"])
    assert held_out_prompts(data, files, EvaluationPlan(max_answer_tokens=files.context_length), 0) == []


def test_a_prompt_that_is_trained_on_judges_nothing():
    prompt = RenderedPrompt(prompt_id="p1", kind="toy", token_ids=(1, 2))
    sample = Sample(sample_id="p1", kind="toy", token_ids=(1, 2, 3), loss_mask=(False, False, True), num_prompt_tokens=2)
    with pytest.raises(DataError, match="1 held-out prompts are trained on, the first p1"):
        prepare_judge(Path(), [prompt], [sample], None, None, EvaluationPlan())
