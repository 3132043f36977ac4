"""The real model: captured states and generated answers against transformers, in float32, and both backends against each other."""

from __future__ import annotations

import pytest
import torch

from breakeven.checkpoints.cache import demo_model_path, is_complete
from breakeven.drafter.capture.capture import Capture
from breakeven.drafter.data.generation import generate
from breakeven.drafter.data.samples import Sample
from breakeven.drafter.serving.sampling import NEAR_TIE

MODEL = demo_model_path("smollm2-135m-instruct")
LAYERS = (2, 15, 27)
QUESTIONS = (
    "What is the capital of France?",
    "Name four animals that live in the sea, as a list.",
    "Repeat this sentence three times: The cat sat on the mat and looked at the rain.",
)
NUM_TOKENS = 20

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not is_complete(MODEL), reason="breakeven fetch smollm2-135m-instruct has not been run"),
]


@pytest.fixture(scope="module")
def model():
    from transformers import LlamaForCausalLM

    return LlamaForCausalLM.from_pretrained(MODEL, dtype=torch.float32)


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    return [
        list(tokenizer.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True)["input_ids"])
        for question in QUESTIONS
    ]


@pytest.fixture(scope="module")
def answers(prompts) -> list[list[int]]:
    found = {index: list(tokens) for index, tokens, _ in generate(MODEL, prompts, max_new_tokens=NUM_TOKENS, device="cpu")}
    return [found[index] for index in range(len(prompts))]


@pytest.fixture(scope="module")
def theirs(model, prompts, answers):
    """Logits and hidden states of transformers for each conversation alone."""
    with torch.no_grad():
        return [
            model(torch.tensor([prompt + answer]), output_hidden_states=True)
            for prompt, answer in zip(prompts, answers, strict=True)
        ]


@pytest.fixture(scope="module")
def samples(prompts, answers) -> list[Sample]:
    return [
        Sample(
            sample_id=question,
            kind="question",
            token_ids=(*prompt, *answer),
            loss_mask=(False,) * len(prompt) + (True,) * len(answer),
            num_prompt_tokens=len(prompt),
        )
        for question, prompt, answer in zip(QUESTIONS, prompts, answers, strict=True)
    ]


def test_every_generated_token_is_the_one_transformers_would_choose(prompts, answers, theirs):
    for prompt, answer, output in zip(prompts, answers, theirs, strict=True):
        top = output.logits[0, len(prompt) - 1 : -1].topk(2, dim=-1)
        assert len(answer) == NUM_TOKENS or answer[-1] in (0, 2)
        for token, choice, gap in zip(answer, top.indices[:, 0], top.values.diff(dim=-1).abs()[:, 0], strict=True):
            # summing in another order may decide a near-tie
            assert token == choice or gap < NEAR_TIE


@pytest.mark.parametrize("runner", ["own", "transformers"])
def test_captured_states_are_those_of_transformers(samples, theirs, runner):
    capture = Capture.from_folder(MODEL, LAYERS, device="cpu", dtype=torch.float32, runner=runner)
    states = capture.capture(samples)
    capture.audit(states, samples, range(len(samples)))
    starts = states.starts.tolist()
    for index, output in enumerate(theirs):
        rows = slice(starts[index], starts[index + 1])
        for place, layer in enumerate(LAYERS):
            mine = states.auxiliary[rows, place * capture.hidden_size : (place + 1) * capture.hidden_size]
            expected = output.hidden_states[layer][0]
            # the first position's states are a hundred times longer than all others, so each row has its own scale
            error = (mine - expected).norm(dim=-1) / expected.norm(dim=-1)
            assert error.max() < 1e-4, (layer, error.max())
        torch.testing.assert_close(states.last[rows], output.hidden_states[-1][0], rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(states.last[rows] @ capture.head_weight().T, output.logits[0], rtol=1e-3, atol=1e-3)
