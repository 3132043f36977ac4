"""train.yaml: what is refused, what may change between two starts, and its page."""

from __future__ import annotations

from pathlib import Path

import pytest

from breakeven.drafter.training.plan import described_keys, load_train_plan, parse_train_plan, plan_changes
from breakeven.errors import PlanError

PAGE = (Path(__file__).parents[4] / "docs" / "training.md").read_text(encoding="utf-8")
SHORT = "target: x\ndata: d.jsonl\nout: o\n"


def test_every_key_is_on_its_page_with_default_and_meaning():
    for key, default, meaning in described_keys():
        assert meaning, key
        assert f"| `{key}` | {default} | {meaning} |" in PAGE


def test_the_page_describes_no_key_that_is_gone():
    known = {key for key, _, _ in described_keys()}
    table = PAGE[PAGE.index("## Keys") :]
    assert {line.split("`")[1] for line in table.splitlines() if line.startswith("| `")} == known


def test_a_short_plan_has_the_published_defaults():
    plan = parse_train_plan(SHORT, "train.yaml")
    assert plan.objective.weights == pytest.approx([0.8**step for step in range(6)])
    assert (plan.batches.tokens, plan.optimiser.clip, plan.gates) == (16384, 1.0, None)


def test_steps_may_have_weights_of_their_own():
    plan = parse_train_plan(SHORT + "objective: {steps: 2, step_weights: [1.0, 0.5]}\n", "train.yaml")
    assert plan.objective.weights == (1.0, 0.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "train.yaml: holds a list; expected a training plan with target, data and out"),
        ("a: [", "train.yaml:1: not valid YAML"),
        ("!!python/object/apply:os.system [ls]", "not valid YAML"),
        ("target: x\nout: o\n", "key 'data' is missing in the plan; expected: Training file"),
        (SHORT + "epochs: 0\n", "train.yaml:4: epochs is 0; expected greater than or equal to 1"),
        (SHORT + "epochs: .nan\n", "epochs is nan"),
        (SHORT + "seed: '1'\n", "seed is '1'; expected a whole number"),
        (SHORT + "head: {fc_nrom: true}\n", "train.yaml:4: unknown key 'fc_nrom' in head; did you mean 'fc_norm'"),
        (SHORT + "objective: {steps: 2, step_weights: [1.0, -1.0]}\n", "none below 0"),
        (SHORT + "".join(f"k{index}: 1\n" for index in range(7)), "and 2 more"),
    ],
)
def test_what_makes_no_sense_is_named(text, message):
    with pytest.raises(PlanError) as raised:
        parse_train_plan(text, "train.yaml")
    assert message in str(raised.value)


def test_files_that_are_no_plan(tmp_path):
    for name, content in (("big", b"a: 1\n" * 40_000), ("binary", b"\xff\xfe\x00")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(PlanError, match=name):
            load_train_plan(tmp_path / name)
    with pytest.raises(PlanError, match="cannot be read"):
        load_train_plan(tmp_path / "absent")


def test_how_training_runs_may_change_and_what_it_learns_may_not():
    stored = parse_train_plan(SHORT, "train.yaml").model_dump(mode="json")
    assert plan_changes(stored, parse_train_plan(SHORT + "compiled: false\nparallel: fsdp\ngates: {}\n", "x")) == []
    changes = plan_changes(stored, parse_train_plan(SHORT + "epochs: 5\nobjective: {steps: 3}\n", "x"))
    assert changes == ["epochs: 4 -> 5", "objective.steps: 6 -> 3"]
