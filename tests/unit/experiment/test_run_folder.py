"""Which run a user names, and what is said where it is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from breakeven.experiment.run_folder import DATABASE, MAX_NAMED, no_run, run_folder


def test_a_run_is_named_by_its_folder_or_by_the_database_in_it(tmp_path: Path) -> None:
    (tmp_path / DATABASE).touch()
    assert run_folder(tmp_path) == run_folder(tmp_path / DATABASE) == tmp_path
    assert run_folder(tmp_path / "gone" / DATABASE) == tmp_path / "gone" / DATABASE


def test_the_folder_of_runs_is_answered_with_the_runs_in_it(tmp_path: Path) -> None:
    for number in range(MAX_NAMED + 2):
        (tmp_path / f"run-{number}").mkdir()
        (tmp_path / f"run-{number}" / DATABASE).touch()
    (tmp_path / "none").mkdir()
    text = str(no_run(tmp_path))
    assert f"name one of them: {tmp_path}/run-0, " in text
    assert text.endswith("and 2 more")
    assert "none" not in text.removeprefix(str(tmp_path))


@pytest.mark.parametrize("name", ["plan.yaml", "result.json", "report.html"])
def test_a_file_of_another_kind_is_no_damaged_run(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("load: []\n")
    assert "a file; expected the folder of a run" in str(no_run(tmp_path / name))
    assert "holds no run.sqlite" in str(no_run(tmp_path / "gone.yaml"))
