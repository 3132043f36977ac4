"""The evaluation's rounds against the plain oracle's, draft for draft and round for round."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
import torch

from breakeven.drafter.capture.states import PackedStates
from breakeven.drafter.evaluation.evaluate import evaluate
from breakeven.drafter.evaluation.held_out import GreedyAnswer, HeldOut
from breakeven.drafter.evaluation.rounds import draft_rounds
from breakeven.drafter.reference.decoding import greedy, speculative_greedy
from breakeven.drafter.reference.eagle3 import draft_chain
from breakeven.drafter.reference.llama import llama
from breakeven.errors import UsageError

PROMPTS = [[5, 40, 7], [12], [3, 3, 60, 61, 62, 70, 8, 9], [88, 11, 13, 2, 44], [9, 30]]
LENGTHS = [13, 20, 2, 1, 9]
K = 4


def packed(sequences: Sequence[Sequence[int]], layers: Sequence[int], target) -> PackedStates:
    config, weights = target
    runs = [llama(torch.tensor(sequence), config, weights) for sequence in sequences]
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return PackedStates(
        token_ids=torch.tensor([token for sequence in sequences for token in sequence]),
        positions=torch.cat([torch.arange(length) for length in lengths]),
        samples=torch.repeat_interleave(torch.arange(len(sequences)), lengths).int(),
        starts=torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]),
        loss_mask=torch.ones(int(lengths.sum()), dtype=torch.bool),
        auxiliary=torch.cat([torch.cat([streams[layer] for layer in layers], dim=-1) for _, streams in runs]),
        last=torch.cat([streams[-1] for _, streams in runs]),
    )


@pytest.fixture
def target(make_target, load_target):
    return load_target(make_target())


def held_out_of(target, layers, split: int = 2) -> HeldOut:
    config, weights = target
    answers = []
    for index, (prompt, length) in enumerate(zip(PROMPTS, LENGTHS, strict=True)):
        tokens = greedy(prompt, length + K, config, weights)
        answers.append(
            GreedyAnswer(
                prompt_id=str(index),
                kind="odd" if index % 2 else "even",
                prompt_ids=tuple(prompt),
                answer_ids=tuple(tokens[:length]),
                beyond_ids=tuple(tokens[length:]),
                finished=True,
            )
        )
    ids = [answer.token_ids for answer in answers]
    return HeldOut(answers=answers, states=[packed(ids[:split], layers, target), packed(ids[split:], layers, target)])


def helpful(weights, target, held_out, seed: int):
    """A random head never has a draft accepted; rows of its own output made the wanted tokens' rows of the head give it some."""
    generator = torch.Generator().manual_seed(seed)
    wanted = torch.tensor(sorted({token for answer in held_out.answers for token in answer.answer_ids}))
    ids = torch.cat([wanted, torch.tensor([token for token in range(97) if token not in set(wanted.tolist())])])[
        : len(weights.head)
    ]
    head = 0.05 * torch.randn(weights.head.shape, generator=generator)
    return dataclasses.replace(weights, target_ids=ids.sort().values, head=head)


@pytest.mark.parametrize(
    "options",
    [{}, {"norm_output": True}, {"fc_norm": True}, {"norm_before_residual": True, "norm_before_fc": True}],
    ids=["3", "3.1 output", "3.1 fc", "speculators"],
)
@pytest.mark.parametrize("k", [1, 3, 4])
def test_drafts_and_rounds_are_those_of_the_plain_oracle(make_head, load_head, target, options, k):
    extra = {f"fc_norm.{index}.weight": torch.full((32,), 0.5 + index) for index in range(3)} if "fc_norm" in options else {}
    config, weights = load_head(make_head(extra=extra, **options), target[0])
    held_out = held_out_of(target, config.auxiliary_layers)
    num_accepted = 0
    for seed in range(3):
        tried = helpful(weights, target, held_out, seed)
        results = draft_rounds(held_out, config, tried, target[1].embed, k)
        assert len(results) == len(PROMPTS)
        for result, prompt, length in zip(results, PROMPTS, LENGTHS, strict=True):
            seen: list[tuple[int, ...]] = []

            def propose(tokens, streams, tried=tried, seen=seen):
                auxiliary = torch.cat([streams[layer] for layer in config.auxiliary_layers], dim=-1)
                seen.append(tuple(draft_chain(tokens, auxiliary, k, config, tried, target[1].embed)))
                return list(seen[-1])

            _, accepted = speculative_greedy(prompt, length, propose, *target)
            assert list(result.accepted) == accepted
            assert list(result.drafts) == seen
            num_accepted += sum(accepted)
    assert num_accepted > 0, "no draft was ever accepted, so the rounds after one were not tried"


def test_rounds_go_on_past_an_accepted_draft_and_count_what_lies_beyond_the_end(make_head, load_head, target, monkeypatch):
    """Drafts that are right except every fifth token, so that rounds of every length occur, the last one past the end."""
    config, weights = load_head(make_head(), target[0])
    held_out = held_out_of(target, config.auxiliary_layers)
    by_prompt = [answer.token_ids for answer in held_out.answers]
    position = 0

    def perfect_but(token_ids, auxiliary, first_row, k, *rest):
        nonlocal position
        rows = []
        for tokens in by_prompt[position : position + len(token_ids)]:
            padded = [*tokens, *[0] * 200]
            rows.append(
                [
                    [(padded[row + 2 + step] + ((row + 2 + step) % 5 == 0)) % 97 for step in range(k)]
                    for row in range(first_row, token_ids.shape[1] - 1)
                ]
            )
        position += len(token_ids)
        return torch.tensor(rows)

    monkeypatch.setattr("breakeven.drafter.evaluation.rounds.draft_everywhere", perfect_but)
    results = draft_rounds(held_out, config, weights, target[1].embed, K)
    for result, prompt, length, tokens in zip(results, PROMPTS, LENGTHS, by_prompt, strict=True):

        def propose(so_far, streams, tokens=tokens):
            return [(tokens[len(so_far) + step] + ((len(so_far) + step) % 5 == 0)) % 97 for step in range(K)]

        _, accepted = speculative_greedy(prompt, length, propose, *target)
        assert list(result.accepted) == accepted
        assert len(result.context) == len(accepted)
    assert results[3].accepted == ()  # the prompt's own pass gave the only token
    assert any(4 in result.accepted for result in results)
    # more than the answers hold: accepted past their ends, as vLLM counts
    emitted = [1 + len(result.accepted) + sum(result.accepted) for result in results]
    assert any(count > length for count, length in zip(emitted, LENGTHS, strict=True))


def test_tokens_outside_the_draft_vocabulary_are_rejections_and_are_counted(make_head, load_head, target):
    config, weights = load_head(make_head(), target[0])
    held_out = held_out_of(target, config.auxiliary_layers)
    answered = {token for answer in held_out.answers for token in answer.token_ids}
    ids = torch.tensor([token for token in range(97) if token not in answered])
    weights = dataclasses.replace(weights, head=torch.randn(len(ids), 32), target_ids=ids)
    config = dataclasses.replace(config, draft_vocab_size=len(ids))
    results = draft_rounds(held_out, config, weights, target[1].embed, 3)
    assert all(count == 0 for result in results for count in result.accepted)
    assert all(missing for result in results for missing in result.unknown)
    evaluation = evaluate(held_out, config, weights, target[1].embed)
    assert evaluation.unknown_token_share == evaluation.unknown_rejection_share == 1.0
    assert evaluation.overall.accept_length == 1.0
    assert evaluation.overall.accept_length_low is None
    assert "no spread" in evaluation.doubts[0]


def test_answers_that_stop_short_are_refused(make_head, load_head, target):
    config, weights = load_head(make_head(), target[0])
    held_out = held_out_of(target, config.auxiliary_layers)
    with pytest.raises(UsageError, match="5 of 5 were continued by fewer than 5 tokens"):
        draft_rounds(held_out, config, weights, target[1].embed, 6)


@pytest.mark.parametrize("sequences_at_once", [1, 2, 1000])
def test_how_the_work_is_cut_changes_nothing(make_head, load_head, target, monkeypatch, sequences_at_once):
    config, weights = load_head(make_head(), target[0])
    held_out = held_out_of(target, config.auxiliary_layers)
    weights = helpful(weights, target, held_out, 0)
    whole = draft_rounds(held_out, config, weights, target[1].embed, 3)
    monkeypatch.setattr("breakeven.drafter.evaluation.rounds.BATCH_SEQUENCES", sequences_at_once)
    monkeypatch.setattr("breakeven.drafter.evaluation.drafting.MAX_ELEMENTS", 64)
    assert draft_rounds(held_out, config, weights, target[1].embed, 3) == whole
