"""docs/fake-engine.md: its plan runs, and its table names every key with its default."""

from __future__ import annotations

import re
from pathlib import Path

from breakeven.engines.fake.truth import Truth, truth_of
from breakeven.experiment.plan import load_plan

PAGE = (Path(__file__).parents[4] / "docs" / "fake-engine.md").read_text(encoding="utf-8")


def test_the_plan_of_the_page_can_be_measured(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    file = tmp_path / "plan.yaml"
    file.write_text(block, encoding="utf-8")
    assert [truth_of(arm).joint for arm in load_plan(file).arms()] == [(), (0.7, 0.5, 0.3), ()]


def test_every_key_is_in_the_table() -> None:
    rows = re.findall(r"^\| (`.*?`) \| (.*?) \|", PAGE, re.MULTILINE)
    told = {}
    for keys, defaults in rows:
        names = re.findall(r"`(\w+)`", keys)
        told |= dict(zip(names, defaults.split(", "), strict=True))
    assert list(told) == list(Truth.model_fields)
    for name, field in Truth.model_fields.items():
        assert told[name] in {str(field.default), "none" if field.default == () else "all"}, name
