"""The drafter in `models/` on topics that its training never saw: offline, embedded engine and real vLLM count the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from breakeven.checkpoints.cache import demo_model_path, is_complete
from breakeven.checkpoints.folder import open_folder
from breakeven.drafter.capture.capture import Capture
from breakeven.drafter.data.combinations import combined_prompts
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.drafter.evaluation.held_out import GreedyAnswer
from breakeven.drafter.evaluation.preparing import greedy_answers, prepare
from breakeven.drafter.evaluation.prompts import RenderedPrompt, render_prompts
from breakeven.drafter.evaluation.rounds import AnswerRounds, draft_rounds
from breakeven.drafter.export.reading import read_head
from breakeven.drafter.gates.result import GateResult
from breakeven.drafter.gates.served_gate import ServedCounts, served_gate
from breakeven.drafter.serving.core import EngineCore
from breakeven.drafter.serving.requests import GenerationRequest
from breakeven.engines.base import Arm, Speculation
from breakeven.experiment.counted import count_answers

MODEL = demo_model_path("smollm2-135m-instruct")
DRAFTER = Path(__file__).parents[3] / "models" / "smollm2-135m-eagle3"
# The figures of more prompts and longer answers are in docs/log.md.
NUM_PROMPTS = 8
MAX_TOKENS = 48
K = 3

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.skipif(not is_complete(MODEL), reason="breakeven fetch smollm2-135m-instruct has not been run"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offline:
    answers: Sequence[GreedyAnswer]
    rounds: Sequence[AnswerRounds]
    stop_ids: Sequence[int]
    max_tokens: int


def unseen(files: TargetFiles, count: int) -> tuple[RenderedPrompt, ...]:
    """Prompts on held-out topics, one kind after the other, the same ones always."""
    held_out = sorted((record for record in combined_prompts() if record.split == "held_out"), key=lambda record: record.id)
    taken: dict[str, int] = {}
    turns = []
    for record in held_out:
        taken[record.kind] = taken.get(record.kind, 0) + 1
        turns.append((taken[record.kind], record.kind, record))
    chosen = [record for _, _, record in sorted(turns, key=lambda turn: turn[:2])[:count]]
    return render_prompts(files, [(record.id, record.kind, record.messages) for record in chosen])


def counted_offline(num_prompts: int, max_tokens: int, dtype: torch.dtype = torch.float32) -> Offline:
    files, target = TargetFiles.from_folder(MODEL), open_folder(MODEL)
    stop_ids = sorted(files.stop_token_ids)
    cpu = torch.device("cpu")
    answers = greedy_answers(
        MODEL,
        unseen(files, num_prompts),
        max_tokens=max_tokens,
        num_draft_tokens=K,
        stop_ids=stop_ids,
        dtype=dtype,
        device=cpu,
    )
    head = read_head(DRAFTER, target, dtype)
    capture = Capture.from_folder(MODEL, head.config.auxiliary_layers, device=cpu, dtype=dtype)
    rounds = draft_rounds(prepare(answers, capture), head.config, head.weights, capture.embed_weight, K)
    return Offline(answers=answers, rounds=rounds, stop_ids=stop_ids, max_tokens=max_tokens)


def judged_vllm(offline: Offline, environment: Path, folder: Path, dtype: str = "float32") -> GateResult:
    arm = Arm(
        name="vllm",
        engine="vllm",
        target=MODEL,
        executable=environment,
        speculation=Speculation(method="eagle3", num_draft_tokens=K, drafter=DRAFTER),
        dtype=dtype,
        context_length=512,
        max_running_requests=2,
        extra_flags=("--enforce-eager",),
        env={"VLLM_CPU_KVCACHE_SPACE": "1"},
    )
    counted = count_answers(
        arm,
        [answer.prompt_ids for answer in offline.answers],
        max_tokens=offline.max_tokens,
        stop_ids=offline.stop_ids,
        folder=folder,
    )
    served = [
        ServedCounts(
            token_ids=each.token_ids,
            num_rounds=each.num_rounds,
            num_accepted=each.num_accepted,
            accepted_per_position=each.accepted_per_position,
        )
        for each in counted
    ]
    return served_gate("vLLM", offline.answers, offline.rounds, served)


def judged_embedded(offline: Offline, dtype: str = "float32") -> GateResult:
    """One prompt at a time, so that counts belong to it."""
    core = EngineCore.load(MODEL, method="eagle3", num_draft_tokens=K, drafter=DRAFTER, max_num_seqs=1, dtype=dtype)
    served = []
    for answer in offline.answers:
        before, tokens = core.stats.acceptance, []
        core.submit(GenerationRequest(request_id=answer.prompt_id, prompt_ids=answer.prompt_ids, max_tokens=offline.max_tokens))
        while core.has_work:
            for chunk in core.step():
                tokens += chunk.token_ids
        after = core.stats.acceptance
        served.append(
            ServedCounts(
                token_ids=tuple(tokens),
                num_rounds=after.num_rounds - before.num_rounds,
                num_accepted=after.num_accepted - before.num_accepted,
                accepted_per_position=tuple(
                    now - then for now, then in zip(after.accepted_per_position, before.accepted_per_position, strict=True)
                ),
            )
        )
    return served_gate("the embedded engine", offline.answers, offline.rounds, served)


@pytest.fixture(scope="module")
def offline() -> Offline:
    return counted_offline(NUM_PROMPTS, MAX_TOKENS)


def test_it_drafts(offline: Offline) -> None:
    """Half of what the card promises would be another drafter; equal counts of a dead one would show nothing."""
    num_rounds = sum(len(answer.accepted) for answer in offline.rounds)
    assert 1 + sum(sum(answer.accepted) for answer in offline.rounds) / num_rounds > 2.0
    assert {count for answer in offline.rounds for count in answer.accepted} == set(range(K + 1))


def test_the_embedded_engine_counts_the_same(offline: Offline) -> None:
    result = judged_embedded(offline)
    assert result.outcome == "passed", result


def test_the_embedded_engine_counts_the_same_with_all_prompts_at_once(offline: Offline) -> None:
    core = EngineCore.load(MODEL, method="eagle3", num_draft_tokens=K, drafter=DRAFTER, max_num_seqs=NUM_PROMPTS)
    for answer in offline.answers:
        core.submit(GenerationRequest(request_id=answer.prompt_id, prompt_ids=answer.prompt_ids, max_tokens=MAX_TOKENS))
    while core.has_work:
        core.step()
    counts = core.stats.acceptance
    assert counts.num_rounds == sum(len(answer.accepted) for answer in offline.rounds)
    assert counts.accepted_per_position == tuple(
        sum(count > position for answer in offline.rounds for count in answer.accepted) for position in range(K)
    )


@pytest.mark.engine_vllm
def test_the_real_vllm_counts_the_same(vllm_environment: Path, offline: Offline, tmp_path: Path) -> None:
    result = judged_vllm(offline, vllm_environment, tmp_path)
    assert result.outcome == "passed", result
    assert result.figures["accepted_served"] == sum(sum(answer.accepted) for answer in offline.rounds)
