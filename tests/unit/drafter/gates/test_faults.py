"""Eight faults of the field, each planted once in the trainer only and once in the export only: the gates catch every one, and name
the stage at fault.

What each looked like when it was found is in docs/training-gates.md.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from breakeven.checkpoints.folder import open_folder
from breakeven.drafter.data.samples import Sample
from breakeven.drafter.evaluation.preparing import prepare
from breakeven.drafter.export.writing import write_head
from breakeven.drafter.gates.export_gate import export_gate
from breakeven.drafter.gates.pipeline import Conversation, Pipeline
from breakeven.drafter.gates.result import GateResult
from breakeven.drafter.gates.running import agreement_gates, run_gates
from breakeven.drafter.training.kernels import Kernels
from breakeven.drafter.training.objective_fast import FastObjective

# heads are trained here
pytestmark = pytest.mark.slow

IDS = "eagle_aux_hidden_state_layer_ids"
STEPS = 4


def first_stop(toy, pipeline: Pipeline, conversations=None) -> GateResult:
    report = run_gates(agreement_gates(conversations or toy.conversations, pipeline, toy.truth))
    assert report.first_stop is not None, [gate.summary for gate in report.gates]
    assert not report.passed
    return report.first_stop


# --- in the trainer only -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("layers", "said"), [((0, 1, 2), "off by 1"), ((1, 2, 2), "other layers")])
def test_trainer_layer_ids_off_by_one(toy, layers, said):
    class OffByOne:
        def capture(self, samples):
            packed = toy.capture.capture(samples)
            streams = [toy.truth.states(sample.token_ids)[0] for sample in samples]
            wrong = torch.cat([torch.cat([each[layer] for layer in layers], dim=-1) for each in streams])
            return dataclasses.replace(packed, auxiliary=wrong)

    result = first_stop(toy, dataclasses.replace(toy.pipeline(), capture=OffByOne()))
    assert (result.gate, result.stage) == ("capture", "capture")
    assert said in result.summary


@pytest.mark.parametrize("shift", [2, 1])
def test_trainer_unshifted_mask(toy, shift):
    sound = toy.pipeline()

    def depths(packed):
        # row t counts where token t is marked (or t + 1), not where the token that it guesses is
        return sound.depths(dataclasses.replace(packed, loss_mask=packed.loss_mask.roll(shift)))

    result = first_stop(toy, dataclasses.replace(sound, depths=depths))
    assert (result.gate, result.stage) == ("objective", "objective")
    assert "mask is not shifted" in result.summary


def test_trainer_absolute_d2t(toy):
    """The teacher's rows are picked by offsets as if they were ids."""

    class Absolute(FastObjective):
        def __init__(self, drafter, target_head, *rest):
            wrong = drafter.target_ids - torch.arange(len(drafter.target_ids))
            super().__init__(drafter, toy.capture.head_weight(wrong), *rest)

    result = first_stop(toy, toy.pipeline(objective=Absolute))
    assert (result.gate, result.stage) == ("objective", "objective")
    assert "offsets are taken for target ids (absolute d2t)" in result.summary


def kernels_that(change):
    """Kernels whose projection gets other arguments: (arguments, step) -> arguments."""
    sound = Kernels()
    calls = 0

    def project(*arguments):
        nonlocal calls
        step, calls = calls % STEPS, calls + 1
        return sound.project(*change(list(arguments), step))

    return dataclasses.replace(sound, project=project)


def objective_with(kernels: Kernels) -> type[FastObjective]:
    class Changed(FastObjective):
        def __init__(self, drafter, target_head, num_steps, dtype, _kernels):
            super().__init__(drafter, target_head, num_steps, dtype, kernels)

    return Changed


def test_trainer_frozen_positions(toy):
    def frozen(arguments, step):
        arguments[4] = arguments[4] - step
        return arguments

    result = first_stop(toy, toy.pipeline(objective=objective_with(kernels_that(frozen))))
    assert (result.gate, result.stage) == ("objective", "model")
    assert "positions do not advance with the step" in result.summary


def test_trainer_missing_hidden_norm(toy):
    def without(arguments, _step):
        arguments[1] = torch.ones_like(arguments[1])
        return arguments

    result = first_stop(toy, toy.pipeline(objective=objective_with(kernels_that(without))))
    assert (result.gate, result.stage) == ("objective", "model")
    assert "the weight of hidden_norm were not used" in result.summary


def test_trainer_template_mismatch(toy):
    """Rendered with a space that the served template does not have."""

    def other(conversation: Conversation) -> Conversation:
        sample = conversation.sample
        changed = dataclasses.replace(
            sample,
            token_ids=(sample.token_ids[0], 32, *sample.token_ids[1:]),
            loss_mask=(False, *sample.loss_mask),
            num_prompt_tokens=sample.num_prompt_tokens + 1,
        )
        return dataclasses.replace(conversation, sample=changed)

    result = first_stop(toy, toy.pipeline(), [other(conversation) for conversation in toy.conversations])
    assert (result.gate, result.stage) == ("data", "data")
    assert "template mismatch" in result.summary
    assert "they part at token 1" in result.summary


def test_trainer_swapped_low_and_high(toy):
    class Swapped:
        def capture(self, samples):
            packed = toy.capture.capture(samples)
            return dataclasses.replace(packed, auxiliary=torch.cat(packed.auxiliary.chunk(3, dim=-1)[::-1], dim=-1))

    result = first_stop(toy, dataclasses.replace(toy.pipeline(), capture=Swapped()))
    assert (result.gate, result.stage) == ("capture", "capture")
    assert "low and high swapped" in result.summary


def test_trainer_half_of_the_tensors_renamed(toy):
    sound = toy.pipeline()

    def tensors():
        return {
            f"model.{name}" if index % 2 else name: tensor for index, (name, tensor) in enumerate(sorted(sound.tensors().items()))
        }

    result = first_stop(toy, dataclasses.replace(sound, tensors=tensors))
    assert (result.gate, result.stage) == ("saving", "saving")
    assert "not saved under the names that engines read" in result.summary


# --- in the export only --------------------------------------------------------------------------------------------------------


@pytest.fixture
def exported(toy, tmp_path):
    """A sound export of a head that is at no neutral point, and a function that judges the folder."""
    pipeline = toy.pipeline()
    pipeline.fit([conversation.sample for conversation in toy.conversations], 10)
    weights = pipeline.weights()
    folder = write_head(pipeline.config, weights, toy.target, tmp_path / "head").folder
    held_out = prepare(toy.answers, toy.capture)

    def judge(target=toy.target) -> GateResult:
        return export_gate(folder, pipeline.config, weights, target, held_out, pipeline.target_embed)

    assert judge().outcome == "passed"
    return folder, judge


def change_config(folder: Path, change) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))


def change_tensors(folder: Path, change) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file(change(tensors), folder / "model.safetensors")


def caught(judge, *said: str, **options) -> None:
    result = judge(**options)
    assert (result.outcome, result.gate, result.stage) == ("failed", "export", "export")
    for words in said:
        assert words in result.summary


def test_export_layer_ids_off_by_one(exported):
    folder, judge = exported

    def both(config):
        config[IDS] = [0, 1, 2]
        config["eagle_config"][IDS] = [-1, 0, 1]

    change_config(folder, both)
    caught(judge, "auxiliary layers [0, 1, 2] (layer inputs) are written, [1, 2, 3] were trained")


def test_export_layer_ids_off_by_one_for_one_engine(exported):
    folder, judge = exported
    change_config(folder, lambda config: config["eagle_config"].update({IDS: [1, 2, 3]}))
    caught(judge, "they name different states")


def test_export_unshifted_mask(exported):
    """The export's mask is that of the vocabulary, one place off the map."""
    folder, judge = exported
    change_tensors(folder, lambda tensors: tensors | {"t2d": tensors["t2d"].roll(1)})
    caught(judge, "t2d and d2t disagree")


def test_export_absolute_d2t(exported):
    folder, judge = exported
    change_tensors(folder, lambda tensors: tensors | {"d2t": tensors["d2t"] + torch.arange(len(tensors["d2t"]))})
    caught(judge, "d2t")


def test_export_frozen_positions(exported):
    """Rotary positions stretched until all of them are the same."""
    folder, judge = exported
    change_config(folder, lambda config: config.update(rope_scaling=None, rope_parameters={"rope_type": "linear", "factor": 1e9}))
    caught(judge, "rotary positions are scaled")


@pytest.mark.parametrize("dropped", [True, False])
def test_export_missing_hidden_norm(exported, dropped):
    folder, judge = exported
    name = "midlayer.hidden_norm.weight"

    def without(tensors):
        if dropped:
            return {key: tensor for key, tensor in tensors.items() if key != name}
        return tensors | {name: torch.ones_like(tensors[name])}

    change_tensors(folder, without)
    caught(judge, "hidden_norm")


def test_export_template_mismatch(exported, toy, tmp_path):
    """The target that is served got another template after the head was made."""
    _, judge = exported
    served = shutil.copytree(toy.target.path, tmp_path / "served")
    template = served / "chat_template.jinja"
    template.write_text(template.read_text().replace("<|assistant|>", "<|assistant|> "))
    caught(judge, "template mismatch", target=open_folder(served))


@pytest.mark.parametrize("where", ["weights", "ids"])
def test_export_swapped_low_and_high(exported, where):
    folder, judge = exported
    if where == "weights":
        change_tensors(
            folder,
            lambda tensors: tensors | {"fc.weight": torch.cat(tensors["fc.weight"].chunk(3, dim=1)[::-1], dim=1).contiguous()},
        )
        caught(judge, "low and the high state are swapped")
    else:
        change_config(folder, lambda config: (config.update({IDS: [3, 2, 1]}), config["eagle_config"].update({IDS: [2, 1, 0]})))
        caught(judge, "[3, 2, 1]")


def test_export_half_of_the_tensors_renamed(exported):
    folder, judge = exported
    change_tensors(
        folder,
        lambda tensors: {
            f"model.{name}" if index % 2 else name: tensor for index, (name, tensor) in enumerate(sorted(tensors.items()))
        },
    )
    caught(judge, "cannot be read as this head")


def test_a_sample_of_another_writer_is_noticed(toy):
    """The right template, the right mask, and an answer that the target would never give."""

    def foreign(conversation: Conversation) -> Conversation:
        sample = conversation.sample
        begin = sample.num_prompt_tokens
        generator = torch.Generator().manual_seed(len(sample.token_ids))
        words = tuple(torch.randint(0, 256, (len(sample.token_ids) - begin,), generator=generator).tolist())
        changed: Sample = dataclasses.replace(sample, token_ids=sample.token_ids[:begin] + words)
        return dataclasses.replace(conversation, sample=changed)

    result = first_stop(toy, toy.pipeline(), [foreign(conversation) for conversation in toy.conversations])
    assert (result.gate, result.stage) == ("data", "data")
    assert "it did not write these answers" in result.summary
