from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file

from breakeven.drafter.data import generation
from breakeven.drafter.data.generation import generate
from breakeven.drafter.reference.decoding import greedy
from breakeven.errors import CheckpointError, PromptsError, UsageError


def random_prompts(count: int, *, seed: int = 5, longest: int = 20) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (count,), generator=generator).tolist()
    return [torch.randint(3, 97, (length,), generator=generator).tolist() for length in lengths]


def collect(*args, **kwargs):
    answers = {}
    for index, tokens, reason in generate(*args, device="cpu", **kwargs):
        assert index not in answers
        answers[index] = (tokens, reason)
    return answers


@pytest.mark.parametrize("overrides", [{}, {"num_key_value_heads": 4, "tie_word_embeddings": False}], ids=["grouped", "untied"])
@pytest.mark.parametrize("steps_per_look", [1, 5])
def test_greedy_answers_are_those_of_the_plain_decoder(make_target, load_target, monkeypatch, overrides, steps_per_look):
    monkeypatch.setitem(generation.STEPS_PER_LOOK, "cpu", steps_per_look)
    folder = make_target(**overrides)
    prompts = random_prompts(11)
    answers = collect(folder, prompts, max_new_tokens=24, stop_ids=(), batch_size=4)
    assert sorted(answers) == list(range(11))
    for index, prompt in enumerate(prompts):
        assert answers[index] == (tuple(greedy(prompt, 24, *load_target(folder))), "length")


def test_answers_end_with_a_stop_token_and_slots_are_used_again(make_target, load_target):
    folder = make_target()
    prompts = random_prompts(17)
    plain = [greedy(prompt, 24, *load_target(folder)) for prompt in prompts]
    stops = {plain[0][0], plain[1][5], plain[2][10]}  # at once, early, late
    answers = collect(folder, prompts, max_new_tokens=24, stop_ids=stops, batch_size=3)
    for index, expected in enumerate(plain):
        end = next((place + 1 for place, token in enumerate(expected) if token in stops), None)
        assert answers[index] == (tuple(expected[:end]), "length" if end is None else "stop")
    assert {reason for _, reason in answers.values()} == {"stop", "length"}


def test_without_stop_ids_the_model_s_own_are_taken(make_target, load_target):
    prompts = random_prompts(6)
    config, weights = load_target(make_target())
    eos = greedy(prompts[0], 8, config, weights)[7]
    answers = collect(make_target("again", eos_token_id=eos), prompts, max_new_tokens=24)
    assert answers[0][0][-1] == eos
    assert answers[0][1] == "stop"


def test_the_end_of_the_context_ends_an_answer(make_target, load_target):
    folder = make_target(max_position_embeddings=32)
    prompts = [[5] * 30, [7] * 3]
    answers = collect(folder, prompts, max_new_tokens=8, stop_ids=())
    assert answers[0] == (tuple(greedy(prompts[0], 2, *load_target(folder))), "length")
    assert answers[1] == (tuple(greedy(prompts[1], 8, *load_target(folder))), "length")


def test_answers_without_end_keep_no_more_places_than_the_context_has(make_target, load_target):
    folder = make_target(max_position_embeddings=32)
    answers = collect(folder, [[5] * 30], max_new_tokens=10**15, stop_ids=())
    assert answers[0] == (tuple(greedy([5] * 30, 2, *load_target(folder))), "length")


def test_prompts_longer_than_a_pass_are_admitted_one_by_one(make_target, monkeypatch):
    folder = make_target()
    prompts = random_prompts(9)
    together = collect(folder, prompts, max_new_tokens=8)
    monkeypatch.setattr(generation, "MAX_PREFILL_TOKENS", 7)
    assert collect(folder, prompts, max_new_tokens=8) == together


def test_what_a_prompt_draws_depends_on_seed_and_index_but_not_on_the_batch(make_target):
    folder = make_target()
    prompts = [[5, 6, 7]] * 12
    arguments = {"max_new_tokens": 12, "temperature": 1.0, "top_p": 0.95, "stop_ids": ()}
    answers = collect(folder, prompts, seed=3, batch_size=12, **arguments)
    assert collect(folder, prompts, seed=3, batch_size=5, **arguments) == answers
    assert len({tokens for tokens, _ in answers.values()}) == 12
    other = collect(folder, prompts, seed=4, **arguments)
    assert all(answers[index] != other[index] for index in range(12))


def test_temperatures_are_each_prompt_s_own(make_target, load_target):
    folder = make_target()
    prompts = random_prompts(6)
    answers = collect(folder, prompts, max_new_tokens=12, temperature=[0.0, 1.5] * 3, stop_ids=(), batch_size=4)
    for index, prompt in enumerate(prompts):
        same = answers[index][0] == tuple(greedy(prompt, 12, *load_target(folder)))
        assert same == (index % 2 == 0)


def test_sampled_tokens_follow_the_model_s_probabilities(make_target, load_target):
    from breakeven.drafter.reference.llama import llama

    folder = make_target()
    config, weights = load_target(folder)
    prompts = [[5, 6, 7]] * 3000
    answers = collect(folder, prompts, max_new_tokens=1, temperature=2.0, stop_ids=(), batch_size=500)
    counts = torch.bincount(torch.tensor([tokens[0] for tokens, _ in answers.values()]), minlength=97)
    logits, _ = llama(torch.tensor([5, 6, 7]), config, weights)
    expected = (logits[-1] / 2.0).softmax(-1) * 3000
    kept = expected > 20
    chi_squared = ((counts[kept] - expected[kept]) ** 2 / expected[kept]).sum()
    # far beyond the 99.9th percentile: the seed is fixed, so this either always holds or the sampler is wrong
    assert chi_squared < 2.5 * kept.sum()
    assert kept.sum() >= 5


def test_no_prompts_give_no_answers(make_target):
    assert list(generate(make_target(), [], max_new_tokens=4)) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"temperature": -1.0}, "temperature is -1"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"temperature": [0.0]}, "1 temperatures for 2 prompts"),
        ({"top_p": 0.0}, "top_p is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
    ],
)
def test_arguments_out_of_range_are_refused_before_anything_is_generated(make_target, arguments, message):
    with pytest.raises(UsageError, match=message):
        generate(make_target(), [[5], [6]], **({"max_new_tokens": 4} | arguments))


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "prompt 1 .*no tokens"),
        ([5] * 128, "prompt 1 .*128 tokens"),
        ([97], "prompt 1 .*97 to 97.*tokenized for another"),
        ([-1], "-1"),
    ],
)
def test_prompts_the_model_cannot_take_are_named(make_target, prompt, message):
    with pytest.raises(PromptsError, match=message):
        generate(make_target(), [[5], prompt], max_new_tokens=4)


def test_memory_that_runs_out_on_the_way_is_one_clear_error(make_target, monkeypatch):
    from breakeven.drafter.data.batched_decoder import BatchedDecoder

    def full(self, num_steps):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(BatchedDecoder, "run", full)
    answers = generate(make_target(), [[5]], max_new_tokens=4, batch_size=7, device="cpu")
    with pytest.raises(UsageError, match="does not fit in the memory of cpu with batch_size 7"):
        list(answers)


def test_another_architecture_is_refused_by_name(make_target):
    with pytest.raises(CheckpointError, match="Qwen3ForCausalLM"):
        generate(make_target(architectures=["Qwen3ForCausalLM"]), [[5]], max_new_tokens=4)


def test_the_parts_that_a_gpu_compiles_are_whole_graphs_and_write_to_the_caches():
    import torch._dynamo

    from breakeven.drafter.data.slot_layers import before_attention
    from breakeven.drafter.model.layer_functions import after_attention

    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    slots, kv_heads, positions = torch.arange(3)[:, None], torch.arange(2)[None], torch.tensor([[0], [4], [2]])
    before = (random(3, 32), random(32), random(64, 32), 1e-5, (4, 2), random(3, 1, 8), random(3, 1, 8))
    after = (random(3, 32), random(3, 32), random(32, 32), random(32), random(96, 32), random(32, 48), 1e-5)
    results = []
    for compiled in (False, True):
        keys, values = torch.zeros(3, 2, 6, 8), torch.zeros(3, 2, 6, 8)
        parts = [before_attention, after_attention]
        if compiled:
            torch._dynamo.reset()
            parts = [torch.compile(part, dynamic=False, fullgraph=True, backend="aot_eager") for part in parts]
        with torch.no_grad():
            queries = parts[0](*before, keys, values, slots, kv_heads, positions)
            results.append((queries, keys, values, parts[1](*after)))
    for plain, compiled in zip(*results, strict=True):
        torch.testing.assert_close(compiled, plain)
    _, keys, values, _ = results[1]
    assert (keys != 0).any(-1).sum() == (values != 0).any(-1).sum() == 6  # one position of each slot, both heads


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_logits_that_are_no_numbers_answer_nothing(make_target, temperature):
    """A target whose weights are finite and overflow: greedy answers were made up, sampled ones a traceback."""
    folder = make_target()
    tensors = load_file(folder / "model.safetensors")
    tensors = {name: tensor * (1e38 if "layers.1." in name else 1.0) for name, tensor in tensors.items()}
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="logits hold NaN or infinity"):
        collect(folder, random_prompts(3), max_new_tokens=4, temperature=temperature, top_p=0.9)


def test_a_target_with_a_nan_is_refused(make_target):
    folder = make_target()
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"][0] = float("nan")
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight holds NaN"):
        collect(folder, random_prompts(3), max_new_tokens=4)
