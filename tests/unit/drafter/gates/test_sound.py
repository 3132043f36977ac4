"""A sound pipeline passes every gate, with the figures to show for it."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from breakeven.drafter.data.samples import Sample
from breakeven.drafter.evaluation.preparing import prepare
from breakeven.drafter.export.writing import write_head
from breakeven.drafter.gates.capture_gate import capture_gate
from breakeven.drafter.gates.data_gate import data_gate
from breakeven.drafter.gates.export_gate import export_gate
from breakeven.drafter.gates.gap_gate import gap_gate
from breakeven.drafter.gates.objective_gate import objective_gate
from breakeven.drafter.gates.overfit_gate import answers_alone, overfit_gate
from breakeven.drafter.gates.pilot_gate import pilot_gate
from breakeven.drafter.gates.saving_gate import saving_gate

# heads are trained here
pytestmark = pytest.mark.slow


def samples(toy) -> list[Sample]:
    return [conversation.sample for conversation in toy.conversations]


def test_data(toy):
    result = data_gate(toy.conversations, toy.truth)
    assert result.outcome == "passed", result
    assert result.figures["num_samples"] == 10


def test_capture(toy):
    result = capture_gate(samples(toy), toy.capture, (1, 2, 3), toy.truth)
    assert result.outcome == "passed", result
    assert result.figures["worst_distance"] < 1e-4


def test_objective(toy):
    pipeline = toy.pipeline()
    before = [parameter.clone() for parameter in pipeline.module.parameters()]
    result = objective_gate(samples(toy)[:3], pipeline, toy.truth)
    assert result.outcome == "passed", result
    assert 24 <= result.figures["num_compared"] <= 3 * 3 * 4
    assert all(torch.equal(mine, now) for mine, now in zip(before, pipeline.module.parameters(), strict=True))


def test_saving(toy):
    assert saving_gate(toy.pipeline()).outcome == "passed"


def test_overfit_pilot_gap_and_export(toy, tmp_path):
    pipeline = toy.pipeline()
    lines: list[str] = []
    overfit = overfit_gate(toy.answers, pipeline, tell=lines.append)
    assert overfit.outcome == "passed", overfit
    assert overfit.figures["accept_length"] > 3
    assert f"after {overfit.figures['num_steps']} steps" in lines[-1]

    held_out = prepare(toy.answers, toy.capture)
    gap = gap_gate(held_out, pipeline, num_draft_tokens=4)
    assert gap.outcome == "passed", gap
    assert gap.figures["gap"] <= 0.005
    assert gap.findings == ()

    weights = pipeline.weights()
    exported = write_head(pipeline.config, weights, toy.target, tmp_path / "head")
    found = export_gate(exported.folder, pipeline.config, weights, toy.target, held_out, pipeline.target_embed)
    assert found.outcome == "passed", found
    assert found.figures["num_accepted"] > 0


def test_pilot_shows_its_gain_and_what_it_promises(toy):
    held_out = prepare(toy.answers[6:], toy.capture)
    train = answers_alone(toy.answers[:6])
    result = pilot_gate(train, held_out, toy.pipeline(), num_steps=40, full_steps=400)
    assert result.outcome in ("passed", "undecided"), result
    assert result.figures["promise_low"] == result.figures["accept_length"] <= result.figures["promise_high"] <= 4.0
    if result.outcome == "passed":
        assert result.figures["gain_low"] > 0
    # the same answers as were learnt: a gain that nobody can doubt
    learnt = pilot_gate(answers_alone(toy.answers), prepare(toy.answers, toy.capture), toy.pipeline(), num_steps=80, full_steps=800)
    assert learnt.outcome == "passed", learnt
    assert learnt.figures["gain_low"] > 0.5
    assert "a guess, not an interval" in learnt.summary


@pytest.mark.parametrize("steps", [0, 1])
def test_a_pilot_that_hardly_trains_is_not_believed(toy, steps):
    result = pilot_gate(
        answers_alone(toy.answers), prepare(toy.answers, toy.capture), toy.pipeline(), num_steps=steps, full_steps=9
    )
    assert result.stops
    assert result.stage == "training"


def test_what_is_learnt_by_heart_and_not_drafted_elsewhere_is_a_finding(toy):
    pipeline = toy.pipeline()
    learnt = answers_alone(toy.answers[:5])
    pipeline.fit(learnt, 60)
    gap = gap_gate(prepare(toy.answers[5:], toy.capture), pipeline, num_draft_tokens=2, trained_on=learnt)
    assert gap.outcome == "passed", gap
    (finding,) = gap.findings
    assert finding.code == "training-accuracy-above-acceptance"
    assert "on 5 training samples" in finding.evidence[0]
    assert "noticed: The head knows its training samples" in gap.line


def test_an_objective_that_counts_otherwise_is_a_gap(toy):
    """Losses are right; the guesses of later steps are judged as if each stood alone."""
    sound = toy.pipeline()
    sound.fit(answers_alone(toy.answers), 20)

    def flattering(packed):
        depths = sound.depths(packed)
        return dataclasses.replace(depths, num_chains_correct=tuple(max(depths.num_chains_correct) for _ in depths.losses))

    result = gap_gate(prepare(toy.answers, toy.capture), dataclasses.replace(sound, depths=flattering))
    assert (result.outcome, result.stage) == ("failed", "model")
    assert "from the same starts" in result.summary


def test_a_slow_machine_is_no_broken_pipeline_and_a_deaf_one_is(toy):
    pipeline = toy.pipeline()
    slow = overfit_gate(toy.answers, pipeline, max_seconds=0.0)
    assert (slow.outcome, slow.figures["num_steps"]) == ("undecided", 0)
    deaf = dataclasses.replace(pipeline, fit=lambda samples, steps: None)
    broken = overfit_gate(toy.answers, deaf, max_steps=20)
    assert (broken.outcome, broken.stage) == ("failed", "training")
    assert "the pipeline is broken" in broken.summary
