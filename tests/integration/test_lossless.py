"""Speculation changes nothing on the real model: greedy answers of every method, alone and batched, against transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from breakeven.checkpoints.cache import demo_model_path, is_complete
from breakeven.checkpoints.folder import open_folder
from breakeven.checkpoints.random_head import write_random_head
from breakeven.drafter.serving.core import EngineCore
from breakeven.drafter.serving.requests import GenerationRequest
from breakeven.drafter.serving.sampling import NEAR_TIE

MODEL = demo_model_path("smollm2-135m-instruct")
QUESTIONS = (
    "What is the capital of France?",
    "Repeat this sentence three times: The cat sat on the mat and looked at the rain.",
    "Write a Python function that adds two numbers.",
    "Name four animals that live in the sea, as a list.",
)
NUM_TOKENS = 32

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not is_complete(MODEL), reason="breakeven fetch smollm2-135m-instruct has not been run"),
]


@pytest.fixture(scope="module")
def prompts() -> list[tuple[int, ...]]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    return [
        tuple(tokenizer.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True)["input_ids"])
        for question in QUESTIONS
    ]


@pytest.fixture(scope="module")
def truth(prompts):
    """transformers' own greedy choice, and the gap to the next, after every prefix of an answer: asked in one forward pass."""
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(MODEL, dtype=torch.float32)

    def ask(prompt: tuple[int, ...], answer: list[int]) -> tuple[list[int], list[float]]:
        with torch.inference_mode():
            logits = model(torch.tensor([[*prompt, *answer]])).logits[0, len(prompt) - 1 : -1]
        top = logits.topk(2, dim=-1)
        return top.indices[:, 0].tolist(), (top.values[:, 0] - top.values[:, 1]).tolist()

    return ask


def answers(core: EngineCore, prompts: list[tuple[int, ...]]) -> list[list[int]]:
    for index, prompt in enumerate(prompts):
        core.submit(GenerationRequest(request_id=str(index), prompt_ids=prompt, max_tokens=NUM_TOKENS, ignore_eos=True))
    tokens: list[list[int]] = [[] for _ in prompts]
    while core.has_work:
        for chunk in core.step():
            tokens[int(chunk.request_id)] += chunk.token_ids
    return tokens


@pytest.mark.parametrize(("method", "max_num_seqs"), [(None, 4), ("ngram", 1), ("ngram", 4), ("eagle3", 4)])
def test_greedy_answers_are_those_of_transformers(prompts, truth, method, max_num_seqs, tmp_path: Path):
    head = None
    if method == "eagle3":
        write_random_head(open_folder(MODEL), head := tmp_path / "head")
    core = EngineCore.load(MODEL, method=method, drafter=head, max_num_seqs=max_num_seqs, context_length=256)
    for prompt, answer in zip(prompts, answers(core, prompts), strict=True):
        assert len(answer) == NUM_TOKENS
        choices, gaps = truth(prompt, answer)
        # every token is the one transformers would choose after what stands before it, except at a near-tie
        assert [token for token, gap in zip(answer, gaps, strict=True) if gap > NEAR_TIE] == [
            choice for choice, gap in zip(choices, gaps, strict=True) if gap > NEAR_TIE
        ]
    if method == "ngram":
        assert core.stats.acceptance.num_accepted > 0
