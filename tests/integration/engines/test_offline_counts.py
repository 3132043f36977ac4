"""A drafter's rounds counted offline, by the embedded engine, the real vLLM and the real SGLang: the same, to the last token.

The head is trained here, in seconds, on four answers of the real model, so that on six prompts it is right often, seldom and never.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from breakeven.checkpoints.cache import demo_model_path, is_complete
from breakeven.checkpoints.folder import open_folder
from breakeven.drafter.capture.capture import Capture
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.drafter.evaluation import drafting
from breakeven.drafter.evaluation.held_out import GreedyAnswer, HeldOut
from breakeven.drafter.evaluation.preparing import greedy_answers, prepare
from breakeven.drafter.evaluation.prompts import render_prompts
from breakeven.drafter.evaluation.rounds import AnswerRounds, draft_rounds
from breakeven.drafter.export.reading import ImportedHead, read_head
from breakeven.drafter.export.writing import write_head
from breakeven.drafter.gates.capture_gate import capture_gate
from breakeven.drafter.gates.export_gate import export_gate
from breakeven.drafter.gates.objective_gate import objective_gate
from breakeven.drafter.gates.overfit_gate import answers_alone
from breakeven.drafter.gates.served_gate import ServedCounts, served_gate
from breakeven.drafter.gates.trainer_pipeline import trainer_pipeline
from breakeven.drafter.gates.truth import TargetTruth
from breakeven.drafter.serving.core import EngineCore
from breakeven.drafter.serving.requests import GenerationRequest
from breakeven.drafter.training.head_shape import head_config
from breakeven.drafter.training.kernels import Kernels
from breakeven.drafter.training.module import Eagle3Module, power_of_two_scales
from breakeven.drafter.training.objective_fast import FastObjective
from breakeven.drafter.training.plan_schema import TrainPlan
from breakeven.engines.base import Arm, Speculation
from breakeven.experiment.counted import count_answers

MODEL = demo_model_path("smollm2-135m-instruct")
QUESTIONS = (
    "Name four animals that live in the sea, as a list.",
    "What is the capital of France?",
    "Write a Python function that adds two numbers.",
    "Say hello to my grandmother.",
    "List the days of the week.",
    "Explain rain to a child.",
)
NUM_LEARNT = 4
MAX_TOKENS = 32
K = 3
NUM_STEPS = 25

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.skipif(not is_complete(MODEL), reason="breakeven fetch smollm2-135m-instruct has not been run"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    folder: Path
    head: ImportedHead
    held_out: HeldOut
    answers: Sequence[GreedyAnswer]
    offline: Sequence[AnswerRounds]
    embed: torch.Tensor

    def rounds(self, held_out: HeldOut | None = None) -> tuple[AnswerRounds, ...]:
        return draft_rounds(held_out or self.held_out, self.head.config, self.head.weights, self.embed, K)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    files, target = TargetFiles.from_folder(MODEL), open_folder(MODEL)
    prompts = render_prompts(
        files, [(str(index), "q", [{"role": "user", "content": text}]) for index, text in enumerate(QUESTIONS)]
    )
    stop_ids = sorted(files.stop_token_ids)
    answers = greedy_answers(
        MODEL, prompts, max_tokens=MAX_TOKENS, num_draft_tokens=K, stop_ids=stop_ids, device=torch.device("cpu")
    )
    plan = TrainPlan.model_validate(
        {
            "target": "t",
            "data": "d",
            "out": "o",
            "objective": {"steps": K},
            # a narrow layer over few words: the function is the same, the steps are fast
            "head": {"intermediate_size": 256, "draft_vocab_size": len({token for each in answers for token in each.token_ids})},
            "optimiser": {"learning_rate": 3e-3},
            "batches": {"tokens": 1024},
        }
    )
    capture = Capture.from_folder(MODEL, (2, 15, 27), device="cpu")
    target_ids = torch.tensor(sorted({token for each in answers for token in each.token_ids}))
    config = head_config(target, plan.head)
    learnt = answers_alone(answers[:NUM_LEARNT])
    packed = capture.capture(learnt)
    module = Eagle3Module(config, target_ids, capture.embed_weight, power_of_two_scales(packed.auxiliary, packed.loss_mask))
    module.initialise(capture.head_weight(target_ids), 0)
    objective = FastObjective(module, capture.head_weight(target_ids), K, torch.float32, Kernels())
    pipeline = trainer_pipeline(objective, capture, plan)
    # the trainer itself, on the real model, against transformers and the plain decoder
    truth, shortest = TargetTruth(MODEL), sorted(learnt, key=lambda sample: len(sample.token_ids))[:1]
    for result in (
        capture_gate(shortest, capture, config.auxiliary_layers, truth),
        objective_gate(shortest, pipeline, truth),
    ):
        assert result.outcome == "passed", result
    pipeline.fit(learnt, NUM_STEPS)
    folder = tmp_path_factory.mktemp("trained") / "head"
    write_head(config, pipeline.weights(), target, folder)
    held_out = prepare(answers, capture)
    found = export_gate(folder, config, pipeline.weights(), target, held_out, capture.embed_weight, num_draft_tokens=K)
    assert found.outcome == "passed", found
    head = read_head(folder, target)
    return Trained(
        folder=folder,
        head=head,
        held_out=held_out,
        answers=answers,
        offline=draft_rounds(held_out, head.config, head.weights, capture.embed_weight, K),
        embed=capture.embed_weight,
    )


def test_the_head_is_right_often_seldom_and_never(trained: Trained) -> None:
    """Or equal counts would show little."""
    accepted = [sum(answer.accepted) for answer in trained.offline]
    assert max(accepted) >= 10, accepted
    assert min(accepted) <= 3, accepted
    assert {count for answer in trained.offline for count in answer.accepted} == set(range(K + 1))


def test_the_embedded_engine_counts_the_same_with_all_prompts_at_once(trained: Trained) -> None:
    core = EngineCore.load(MODEL, method="eagle3", num_draft_tokens=K, drafter=trained.folder, max_num_seqs=len(QUESTIONS))
    for answer in trained.answers:
        core.submit(GenerationRequest(request_id=answer.prompt_id, prompt_ids=answer.prompt_ids, max_tokens=MAX_TOKENS))
    tokens: dict[str, list[int]] = {answer.prompt_id: [] for answer in trained.answers}
    while core.has_work:
        for chunk in core.step():
            tokens[chunk.request_id] += chunk.token_ids
    assert tokens == {answer.prompt_id: list(answer.answer_ids) for answer in trained.answers}
    counts = core.stats.acceptance
    assert counts.num_rounds == sum(len(answer.accepted) for answer in trained.offline)
    assert counts.num_accepted == sum(sum(answer.accepted) for answer in trained.offline)
    assert counts.accepted_per_position == tuple(
        sum(count > position for answer in trained.offline for count in answer.accepted) for position in range(K)
    )


def launched(trained: Trained, engine: str, environment: Path, *, flags: tuple[str, ...], env: dict[str, str]) -> Arm:
    return Arm(
        name=engine,
        engine=engine,
        target=MODEL,
        executable=environment,
        speculation=Speculation(method="eagle3", num_draft_tokens=K, drafter=trained.folder),
        dtype="float32",
        context_length=512,
        max_running_requests=2,
        extra_flags=flags,
        env=env,
    )


def counted(arm: Arm, trained: Trained, folder: Path) -> list[ServedCounts]:
    answers = count_answers(
        arm,
        [answer.prompt_ids for answer in trained.answers],
        max_tokens=MAX_TOKENS,
        stop_ids=sorted(TargetFiles.from_folder(MODEL).stop_token_ids),
        folder=folder / "served",
    )
    return [
        ServedCounts(
            token_ids=each.token_ids,
            num_rounds=each.num_rounds,
            num_accepted=each.num_accepted,
            accepted_per_position=each.accepted_per_position,
        )
        for each in answers
    ]


@pytest.mark.engine_sglang
def test_the_real_sglang_counts_the_same(sglang_environment: Path, trained: Trained, tmp_path: Path) -> None:
    """The same folder, read by its other key, as layer outputs. The kernels are stand-ins, the reader is SGLang's own."""
    stand_ins = Path(__file__).with_name("sglang_stand_ins")
    env = {"SGLANG_USE_CPU_ENGINE": "1", "PYTHONPATH": str(stand_ins), "OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1"}
    flags = ("--device", "cpu", "--disable-overlap-schedule", "--skip-server-warmup", "--max-total-tokens", "8192")
    flags += ("--prefill-attention-backend", "intel_amx", "--decode-attention-backend", "intel_amx")
    served = counted(launched(trained, "sglang", sglang_environment, flags=flags, env=env), trained, tmp_path)
    result = served_gate("SGLang", trained.answers, trained.offline, served)
    assert result.outcome == "passed", result
    assert result.figures["accepted_served"] == sum(sum(answer.accepted) for answer in trained.offline)


@pytest.mark.engine_vllm
def test_the_real_vllm_counts_the_same_and_no_shared_fault_passes(
    vllm_environment: Path, trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arm = launched(trained, "vllm", vllm_environment, flags=("--enforce-eager",), env={"VLLM_CPU_KVCACHE_SPACE": "1"})
    served = counted(arm, trained, tmp_path)
    result = served_gate("vLLM", trained.answers, trained.offline, served)
    assert result.outcome == "passed", result
    assert result.figures["accepted_served"] == sum(sum(answer.accepted) for answer in trained.offline)

    # trainer and offline decoder with the same fault agree with each other; the engine does not agree with them
    def judged(rounds: Sequence[AnswerRounds]) -> None:
        found = served_gate("vLLM", trained.answers, rounds, served)
        assert (found.outcome, found.stage) == ("failed", "serving"), found

    layers_below = Capture.from_folder(MODEL, (1, 14, 26), device="cpu")
    judged(trained.rounds(prepare(trained.answers, layers_below)))
    swapped = [
        replace(packed, auxiliary=torch.cat(packed.auxiliary.chunk(3, dim=-1)[::-1], dim=-1)) for packed in trained.held_out.states
    ]
    judged(trained.rounds(HeldOut(answers=trained.answers, states=swapped)))
    monkeypatch.setattr(drafting._Pass, "_project", frozen_positions(drafting._Pass._project))
    judged(trained.rounds())


def frozen_positions(project: Callable[..., object]) -> Callable[..., object]:
    """Steps after the first stand where the first stood."""
    step = 0

    def frozen(self: object, states: torch.Tensor, token_ids: torch.Tensor, positions: torch.Tensor) -> object:
        nonlocal step
        step = 0 if int(positions[0]) == 0 else step + 1
        return project(self, states, token_ids, positions - step)

    return frozen
