from __future__ import annotations

import logging
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from breakeven.drafter.reference.decoding import greedy, speculative_greedy
from breakeven.drafter.reference.eagle3 import draft_chain
from breakeven.drafter.reference.llama import llama
from breakeven.drafter.serving.core import EngineCore
from breakeven.drafter.serving.requests import GenerationRequest
from breakeven.errors import CheckpointError, UsageError

PROMPTS = [(5, 40, 7), (11,), (3, 3, 3, 3, 9, 3, 3), tuple(range(10, 35))]
# A vocabulary this small lets a random head guess right now and then.
SMALL = {"vocab_size": 12}


@pytest.fixture(params=[None, "ngram", "eagle3"])
def method(request):
    return request.param


@pytest.fixture
def load(make_target, make_head):
    """An engine core on the tiny model and its options; also the folders, for the oracle."""

    def make(method: str | None = None, *, overrides: dict[str, Any] | None = None, **options: Any) -> EngineCore:
        overrides = overrides or {}
        head = make_head(**overrides, draft_vocab_size=overrides.get("vocab_size", 97) // 3) if method == "eagle3" else None
        return EngineCore.load(make_target(**overrides), method=method, drafter=head, **options)

    return make


def ask(name: str, prompt: tuple[int, ...], max_tokens: int = 20, **options: Any) -> GenerationRequest:
    return GenerationRequest(request_id=name, prompt_ids=prompt, max_tokens=max_tokens, **({"ignore_eos": True} | options))


def run(core: EngineCore, requests: list[GenerationRequest], *, every: int = 0) -> tuple[dict[str, list[int]], dict[str, str]]:
    """Tokens and finish reason of each request; `every` > 0 submits one request each so many steps."""
    pending = list(requests)
    tokens: dict[str, list[int]] = defaultdict(list)
    reasons: dict[str, str] = {}
    steps = 0
    while pending or core.has_work:
        while pending and (every == 0 or steps % every == 0):
            core.submit(pending.pop(0))
            if every:
                break
        for chunk in core.step():
            assert chunk.request_id not in reasons, "a chunk after the end"
            tokens[chunk.request_id] += chunk.token_ids
            if chunk.finish_reason:
                reasons[chunk.request_id] = chunk.finish_reason
        steps += 1
        assert steps < 1000
    return tokens, reasons


@pytest.mark.parametrize(("max_num_seqs", "every"), [(1, 0), (2, 0), (4, 0), (3, 2)])
def test_greedy_answers_equal_plain_decoding_alone_or_together(load, load_target, make_target, method, max_num_seqs, every):
    core = load(method, overrides=SMALL, max_num_seqs=max_num_seqs, num_draft_tokens=3)
    config, weights = load_target(make_target(**SMALL))
    prompts = [tuple(token % 12 for token in prompt) for prompt in PROMPTS]
    tokens, reasons = run(core, [ask(str(index), prompt, 20 + index) for index, prompt in enumerate(prompts)], every=every)
    for index, prompt in enumerate(prompts):
        assert tokens[str(index)] == greedy(list(prompt), 20 + index, config, weights)
    assert set(reasons.values()) == {"length"}
    assert core.stats.num_running == core.stats.num_waiting == 0
    assert core.stats.generation_tokens == sum(map(len, tokens.values())) == 86
    assert core.stats.prompt_tokens == 36
    if method:
        assert core.stats.acceptance.num_accepted > 0, "nothing was accepted, so the test shows little"


@pytest.mark.parametrize("every", [0, 3])
@pytest.mark.parametrize("drafting", ["ngram", "eagle3"])
@pytest.mark.parametrize("schedule", [((1, 1, 3), (2, 2, 1), (3, 9, 0)), ((1, 2, 0), (3, 4, 3)), ((1, 9, 0),)])
def test_a_schedule_changes_speed_and_not_what_is_said(load, load_target, make_target, drafting, schedule, every):
    core = load(drafting, overrides=SMALL, max_num_seqs=4, num_draft_tokens=3, schedule=schedule)
    config, weights = load_target(make_target(**SMALL))
    prompts = [tuple(token % 12 for token in prompt) for prompt in PROMPTS]
    tokens, _ = run(core, [ask(str(index), prompt, 12 + 9 * index) for index, prompt in enumerate(prompts)], every=every)
    for index, prompt in enumerate(prompts):
        assert tokens[str(index)] == greedy(list(prompt), 12 + 9 * index, config, weights)
    acceptance = core.stats.acceptance
    assert acceptance.num_steps > 0
    assert (acceptance.num_drafted == 0) == (schedule == ((1, 9, 0),))
    assert acceptance.num_rounds <= acceptance.num_steps


def test_drafts_follow_the_number_of_running_requests(load):
    core = load("eagle3", overrides=SMALL, max_num_seqs=4, num_draft_tokens=3, schedule=((1, 1, 3), (2, 2, 1), (3, 4, 0)))
    for index, max_tokens in enumerate((60, 30, 12)):
        core.submit(ask(str(index), (5, 4, 7), max_tokens))
    seen: dict[int, set[int]] = defaultdict(set)
    while core.has_work:
        running, before = core.stats.num_running, core.stats.acceptance
        core.step()
        after = core.stats.acceptance
        if running and after.num_steps > before.num_steps:
            seen[running].add((after.num_drafted - before.num_drafted) // running)
    assert seen == {3: {0}, 2: {1}, 1: {3}}


def test_a_drafter_that_rested_drafts_as_if_it_had_not(load, monkeypatch):
    """Its cache is kept up while it rests: alone again, a request gets the drafts that it would have had anyway."""

    def drafts_of(core: EngineCore, *requests: GenerationRequest) -> dict[int, list[int]]:
        """What was proposed for the request in slot 0, by the length of its history."""
        seen: dict[int, list[int]] = {}
        propose = core._drafter.propose

        def noted(histories, spans, states, num_drafts):
            proposals = propose(histories, spans, states, num_drafts)
            if spans[0].slot == 0:
                seen[len(histories[0])] = proposals[0]
            return proposals

        monkeypatch.setattr(core._drafter, "propose", noted)
        run(core, list(requests))
        return seen

    a, b = ask("a", (5, 4, 7), 40), ask("b", (3, 3, 9), 8)
    rested = drafts_of(load("eagle3", max_num_seqs=2, num_draft_tokens=3, schedule=((1, 1, 3), (2, 2, 0))), a, b)
    always = drafts_of(load("eagle3", max_num_seqs=1, num_draft_tokens=3), a)
    assert [] in rested.values()
    drafted = {length: drafts for length, drafts in rested.items() if drafts}
    assert len(drafted) > 10
    assert all(always[length] == drafts for length, drafts in drafted.items() if length in always)
    assert len(drafted.keys() & always.keys()) > 10


def test_acceptance_counts_equal_the_reference(load, load_target, load_head, make_target, make_head):
    core = load("eagle3", overrides=SMALL, num_draft_tokens=2, max_num_seqs=3)
    target, weights = load_target(make_target(**SMALL))
    head, head_weights = load_head(make_head(**SMALL, draft_vocab_size=4), target)
    accepted_by_round = []
    prompts = [(5, 4, 7), (11,), (3, 3, 9, 3, 3)]
    for prompt in prompts:
        _, accepted = speculative_greedy(
            list(prompt),
            30,
            lambda tokens, streams: draft_chain(
                tokens, torch.cat([streams[layer] for layer in head.auxiliary_layers], -1), 2, head, head_weights, weights.embed
            ),
            target,
            weights,
        )
        accepted_by_round += accepted
    run(core, [ask(str(index), prompt, 30) for index, prompt in enumerate(prompts)])
    acceptance = core.stats.acceptance
    assert acceptance.num_steps == acceptance.num_rounds == len(accepted_by_round)
    assert acceptance.num_drafted == 2 * len(accepted_by_round)
    assert acceptance.num_accepted == sum(accepted_by_round) > 0
    assert acceptance.accepted_per_position == tuple(sum(count > i for count in accepted_by_round) for i in range(2))


def test_ngram_rounds_without_drafts_are_steps_but_no_rounds(load):
    core = load("ngram", ngram_min=3)
    run(core, [ask("a", (1, 2, 3, 4, 5), 3)])
    acceptance = core.stats.acceptance
    assert acceptance.num_steps == 2
    assert acceptance.num_rounds == acceptance.num_drafted == 0


def test_stop_tokens_end_an_answer_and_are_its_last(load, load_target, make_target, method):
    config, weights = load_target(make_target())
    expected = greedy([5, 40, 7], 30, config, weights)
    stop = expected[4]
    cut = expected[: expected.index(stop) + 1]
    core = load(method)
    tokens, reasons = run(core, [ask("a", (5, 40, 7), 30, stop_token_ids=frozenset([stop])), ask("b", (11,), 3)])
    assert tokens["a"] == cut
    assert reasons == {"a": "stop", "b": "length"}


def test_end_of_sequence_ends_unless_ignored(load, load_target, make_target):
    config, weights = load_target(make_target())
    expected = greedy([5, 40, 7], 10, config, weights)
    overrides = {"eos_token_id": expected[3]}
    tokens, reasons = run(load(overrides=overrides), [ask("a", (5, 40, 7), 10, ignore_eos=False)])
    assert tokens["a"] == expected[: expected.index(expected[3]) + 1]
    assert reasons["a"] == "stop"
    tokens, reasons = run(load(overrides=overrides), [ask("a", (5, 40, 7), 10)])
    assert tokens["a"] == expected
    assert reasons["a"] == "length"


def test_the_context_ends_an_answer(load, load_target, make_target, method):
    config, weights = load_target(make_target())
    core = load(method, context_length=16)
    tokens, reasons = run(core, [ask("a", (5, 40, 7), 100)])
    assert reasons == {"a": "length"}
    assert tokens["a"] == greedy([5, 40, 7], 13, config, weights)


def test_admission_is_bounded_and_in_order(load):
    core = load(max_num_seqs=2)
    for index in range(4):
        core.submit(ask(str(index), (index + 1,), 2))
    core.step()
    assert (core.stats.num_running, core.stats.num_waiting) == (2, 2)
    seen = [chunk.request_id for chunk in core.step()]
    assert seen == ["0", "1"]
    tokens, _ = run(core, [])
    assert set(tokens) == {"2", "3"}


def test_a_first_token_does_not_wait_for_the_round_of_others(load):
    core = load(max_num_seqs=2)
    core.submit(ask("a", (1, 2), 9))
    assert [(chunk.request_id, len(chunk.token_ids)) for chunk in core.step()] == [("a", 1)]
    core.submit(ask("b", (3, 4), 9))
    assert [chunk.request_id for chunk in core.step()] == ["b"]
    assert [chunk.request_id for chunk in core.step()] == ["a", "b"]


def test_an_aborted_request_says_no_more_and_frees_its_place(load, method):
    core = load(method, max_num_seqs=1)
    core.submit(ask("a", (1, 2), 50))
    core.submit(ask("b", (3, 4), 50))
    core.submit(ask("c", (5, 6), 4))
    core.step()
    core.abort("a")
    core.abort("b")
    core.abort("unknown")
    tokens, reasons = run(core, [])
    assert set(tokens) == {"c"}
    assert reasons == {"c": "length"}
    assert not core.has_work


@pytest.mark.parametrize("length", [1.0, 1.5, 2.4, 3.7, 4.0])
@pytest.mark.parametrize("max_num_seqs", [1, 3])
def test_forced_acceptance_has_the_ordered_mean_and_least_variance(load, length, max_num_seqs):
    core = load("eagle3", num_draft_tokens=3, forced_accept_length=length, max_num_seqs=max_num_seqs)
    run(core, [ask(str(index), (index + 1, 2), 31) for index in range(6)])
    acceptance = core.stats.acceptance
    assert acceptance.accept_length == pytest.approx(length, abs=max_num_seqs / acceptance.num_steps)
    assert acceptance.num_drafted == 3 * acceptance.num_rounds == 3 * acceptance.num_steps
    low = int(length) - 1
    assert acceptance.accepted_per_position[:low] == (acceptance.num_rounds,) * low
    assert sum(acceptance.accepted_per_position) == acceptance.num_accepted
    assert acceptance.accepted_per_position[low + 1 :] == (0,) * (3 - low - 1)


def test_forced_acceptance_serves_all_requests_alike(load):
    core = load("eagle3", num_draft_tokens=1, forced_accept_length=1.5, max_num_seqs=2)
    core.submit(ask("a", (1, 2), 60))
    core.submit(ask("b", (3, 4), 60))
    lengths = {"a": 0, "b": 0}
    for _ in range(13):
        for chunk in core.step():
            lengths[chunk.request_id] += len(chunk.token_ids)
        assert abs(lengths["a"] - lengths["b"]) <= 1
    assert sum(lengths.values()) == 2 + 12 * 3


def test_forced_acceptance_makes_up_for_rounds_without_drafts(load):
    core = load("ngram", num_draft_tokens=3, forced_accept_length=1.5, overrides=SMALL)
    run(core, [ask("a", (5, 6, 7, 8), 100)])
    acceptance = core.stats.acceptance
    assert acceptance.num_rounds < acceptance.num_steps
    assert acceptance.accept_length == pytest.approx(1.5, abs=3 / acceptance.num_steps)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "ngram", "num_draft_tokens": 3, "forced_accept_length": 4.1}, "with 3 drafts a round; expected 1 to 4"),
        ({"method": "ngram", "num_draft_tokens": 3, "forced_accept_length": 0.9}, "with 3 drafts a round; expected 1 to 4"),
        ({"forced_accept_length": 2.0}, "expected a drafter"),
        ({"method": "medusa"}, "medusa"),
        ({"method": "ngram", "num_draft_tokens": 0}, "at least 1"),
        ({"method": "ngram", "ngram_min": 4, "ngram_max": 2}, "from 4 to 2"),
        ({"method": "eagle3"}, "drafter folder"),
        ({"dtype": "float8"}, "float8"),
        ({"max_num_seqs": 0}, "max_num_seqs"),
        ({"context_length": 1000}, "128"),
        ({"context_length": 1}, "context length"),
        ({"num_threads": 0}, "num_threads"),
    ],
)
def test_options_that_make_no_sense_are_refused(make_target, options, message):
    with pytest.raises(UsageError, match=message):
        EngineCore.load(make_target(), **options)


def test_bfloat16_serves_every_method(load, method):
    tokens, _ = run(load(method, dtype="bfloat16", max_num_seqs=2), [ask("a", (5, 40, 7), 12), ask("b", tuple(range(20)), 12)])
    assert [len(tokens[name]) for name in "ab"] == [12, 12]


def test_a_missing_folder_is_one_message(tmp_path):
    with pytest.raises(CheckpointError, match="nothing there"):
        EngineCore.load(tmp_path / "none")


@pytest.mark.parametrize(
    ("request_options", "message"),
    [
        ({"prompt_ids": ()}, "0 tokens"),
        ({"prompt_ids": (1,) * 16}, "1 to 15"),
        ({"prompt_ids": (97,)}, "vocabulary"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": -1.0}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"seed": -1}, "seed"),
        ({"request_id": "taken"}, "taken"),
    ],
)
def test_requests_that_cannot_be_served_are_refused(load, request_options, message):
    core = load(context_length=16)
    core.submit(ask("taken", (1,)))
    with pytest.raises(UsageError, match=message):
        core.submit(GenerationRequest(**({"request_id": "a", "prompt_ids": (1,), "max_tokens": 4} | request_options)))


def test_auxiliary_layers_are_never_a_silent_default(make_target, make_head, caplog):
    head = make_head(eagle_aux_hidden_state_layer_ids=None)
    with caplog.at_level(logging.INFO, logger="breakeven"):
        EngineCore.load(make_target(), method="eagle3", drafter=head)
    assert "default, since the config names none" in caplog.text


def test_a_seed_repeats_an_answer_whoever_shares_the_batch(load, method):
    chosen = ask("a", (5, 4), 15, temperature=1.0, seed=42)
    alone, _ = run(load(method, overrides=SMALL), [chosen])
    crowd = [ask(str(index), (index + 1,), 15, temperature=1.0) for index in range(3)]
    together, _ = run(load(method, overrides=SMALL), [*crowd, chosen])
    other, _ = run(load(method, overrides=SMALL), [ask("a", (5, 4), 15, temperature=1.0, seed=43)])
    assert alone["a"] == together["a"]
    assert alone["a"] != other["a"]


@pytest.mark.parametrize("top_p", [1.0, 0.8])
def test_sampled_answers_have_the_distribution_of_the_target(load, load_target, make_target, method, top_p):
    """Chi-square on all answers of three tokens, against the exact product of the target's probabilities."""
    overrides = {"vocab_size": 6}
    config, weights = load_target(make_target(**overrides))
    prompt = (2, 1, 3, 1, 3, 1)
    expected: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(3):
        longer = {}
        for answer, probability in expected.items():
            logits = llama(torch.tensor([*prompt, *answer]), config, weights)[0][-1].double().numpy() / 1.5
            p = np.exp(logits - logits.max())
            p /= p.sum()
            order = np.argsort(-p)
            outside = order[np.cumsum(p[order]) - p[order] >= top_p]
            p[outside] = 0.0
            p /= p.sum()
            longer |= {(*answer, token): probability * p[token] for token in range(6) if p[token] > 0}
        expected = longer
    core = load(method, overrides=overrides, max_num_seqs=32, num_draft_tokens=2, seed=8)
    answers, _ = run(core, [ask(str(i), prompt, 3, temperature=1.5, top_p=top_p) for i in range(1200)])
    observed: dict[tuple[int, ...], int] = defaultdict(int)
    for answer in answers.values():
        observed[tuple(answer)] += 1
    assert set(observed) <= set(expected)
    # answers expected less than five times are pooled, as the test's approximation asks
    frequent = [answer for answer, probability in expected.items() if probability * 1200 >= 5]
    counts = [observed[answer] for answer in frequent]
    means = [expected[answer] * 1200 for answer in frequent]
    rest = 1200 - sum(means)
    if rest >= 5:
        counts.append(1200 - sum(counts))
        means.append(rest)
    else:
        means = [mean * sum(counts) / sum(means) for mean in means]
    assert len(counts) > 10
    assert stats.chisquare(counts, means).pvalue > 1e-3
    if method:
        assert core.stats.acceptance.num_accepted > 100
