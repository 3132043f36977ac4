"""A whole training in miniature on a target that talks: random weights, real pipeline, ten prompts learnt by heart in seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from breakeven.checkpoints.folder import ModelFolder, open_folder
from breakeven.drafter.capture.capture import Capture
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.drafter.evaluation.held_out import GreedyAnswer
from breakeven.drafter.evaluation.preparing import greedy_answers
from breakeven.drafter.evaluation.prompts import render_prompts
from breakeven.drafter.gates.overfit_gate import answers_alone
from breakeven.drafter.gates.pipeline import Conversation, Pipeline
from breakeven.drafter.gates.trainer_pipeline import trainer_pipeline
from breakeven.drafter.gates.truth import TargetTruth
from breakeven.drafter.model.eagle3 import Eagle3Config
from breakeven.drafter.model.llama import LlamaConfig
from breakeven.drafter.training.kernels import Kernels
from breakeven.drafter.training.module import Eagle3Module, power_of_two_scales
from breakeven.drafter.training.objective_fast import FastObjective
from breakeven.drafter.training.plan_schema import TrainPlan

LAYERS = (1, 2, 3)
QUESTIONS = tuple("abcdefghij")
MAX_TOKENS = 16
STEPS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Toy:
    """Everything that a gate is given. `pipeline()` makes a fresh head each time."""

    target: ModelFolder
    truth: TargetTruth
    answers: Sequence[GreedyAnswer]
    conversations: Sequence[Conversation]
    capture: Capture
    pipeline: Callable[..., Pipeline]


def make_pipeline(target: Path, capture: Capture, answers: Sequence[GreedyAnswer]) -> Callable[..., Pipeline]:
    config = LlamaConfig.from_folder(open_folder(target))
    known = sorted({token for answer in answers for token in answer.token_ids})
    samples = answers_alone(answers)

    def make(
        target_ids: torch.Tensor | None = None,
        objective: type[FastObjective] = FastObjective,
        module: type[Eagle3Module] = Eagle3Module,
    ) -> Pipeline:
        ids = torch.tensor(known) if target_ids is None else target_ids
        fields = {name: getattr(config, name) for name in LlamaConfig.__slots__} | {"num_layers": 1, "tie_word_embeddings": False}
        head = Eagle3Config(
            shape=LlamaConfig(**fields), draft_vocab_size=len(ids), auxiliary_layers=LAYERS, auxiliary_source="trained"
        )
        packed = capture.capture(samples)
        drafter = module(head, ids, capture.embed_weight, power_of_two_scales(packed.auxiliary, packed.loss_mask))
        drafter.initialise(capture.head_weight(ids), seed=0)
        plan = TrainPlan.model_validate(
            {
                "target": "t",
                "data": "d",
                "out": "o",
                "objective": {"steps": STEPS},
                "batches": {"tokens": 1024},
                "optimiser": {"learning_rate": 0.01},
            }
        )
        built = objective(drafter, capture.head_weight(ids), STEPS, torch.float32, Kernels())
        return trainer_pipeline(built, capture, plan)

    return make


@pytest.fixture(scope="session")
def toy(shared_talking_target: Path) -> Toy:
    talking_target = shared_talking_target
    files = TargetFiles.from_folder(talking_target)
    messages = [[{"role": "user", "content": question}] for question in QUESTIONS]
    prompts = render_prompts(files, [(str(index), "toy", each) for index, each in enumerate(messages)])
    answers = greedy_answers(
        talking_target, prompts, max_tokens=MAX_TOKENS, num_draft_tokens=4, stop_ids=sorted(files.stop_token_ids)
    )
    capture = Capture.from_folder(talking_target, LAYERS, device="cpu")
    conversations = [
        Conversation(messages=(*each, {"role": "assistant", "content": "as the target said"}), sample=sample)
        for each, sample in zip(messages, answers_alone(answers), strict=True)
    ]
    return Toy(
        target=open_folder(talking_target),
        truth=TargetTruth(talking_target),
        answers=answers,
        conversations=conversations,
        capture=capture,
        pipeline=make_pipeline(talking_target, capture, answers),
    )
