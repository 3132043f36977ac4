"""`--fix`: broken folders repaired in a copy, which is then as healthy as before it was broken."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.unit.doctor.broken import BREAKERS, Breaker, Deployment
from typer.testing import CliRunner

from breakeven.checkpoints.folder import open_folder
from breakeven.checkpoints.rows import read_whole
from breakeven.cli import app
from breakeven.doctor.examine import examine
from breakeven.doctor.registry import RULES
from breakeven.doctor.repair.writing import REPAIRS, repaired
from breakeven.errors import CheckpointError, UsageError

# Ways of breaking that leave nothing to repair from, or whose repair belongs elsewhere (flags, releases, retraining).
BEYOND_REPAIR = {
    "no_map",  # neither d2t nor t2d is left
    "a_map_never_filled",
    "a_token_twice_and_no_marks",
    "four_ids_for_three_states",
    "four_states_in_a_release_that_takes_three",
    "two_layers_on_sglang",
    "biases_on_sglang",
    "a_flag_without_its_norm",
    "another_base",
    "half_of_a_fused_layer",
    "ids_of_either_convention_that_nobody_reads",
    "served_longer_on_sglang",
}
CASES = [
    pytest.param(breaker, id=f"{code}: {breaker.__name__}")
    for code in REPAIRS
    for breaker in BREAKERS[code]
    if breaker.__name__ not in BEYOND_REPAIR
]


@pytest.mark.parametrize("breaker", CASES)
def test_the_repaired_copy_has_nothing_above_info(breaker: Breaker, tmp_path: Path) -> None:
    broken = Deployment()
    breaker(broken)
    evidence = broken.evidence(tmp_path)
    result = repaired(evidence, examine(evidence), tmp_path / "repaired")
    assert result.repairs, "nothing was repaired"
    assert result.remaining == ()
    assert evidence.draft is not None
    before, after = evidence.draft.tensors, open_folder(tmp_path / "repaired").tensors
    untouched = {name for name in before if not any(f" {name} " in line for line in result.repairs)}
    for name in untouched & set(after):
        mine, theirs = read_whole(before[name]), read_whole(after[name])
        assert mine is None or np.array_equal(mine, theirs, equal_nan=mine.dtype.kind == "f"), name  # type: ignore[arg-type]


def test_offsets_and_heads_come_out_as_they_were(tmp_path: Path) -> None:
    healthy, broken = Deployment(), Deployment()
    rows = broken.draft.tensors["d2t"] + np.arange(len(broken.draft.tensors["d2t"]))
    broken.draft.tensors["d2t"] = rows
    del broken.draft.tensors["lm_head.weight"]
    evidence = broken.evidence(tmp_path)
    result = repaired(evidence, examine(evidence), tmp_path / "repaired")
    after = open_folder(tmp_path / "repaired").tensors
    assert np.array_equal(read_whole(after["d2t"]), healthy.draft.tensors["d2t"])  # type: ignore[arg-type]
    assert np.array_equal(read_whole(after["lm_head.weight"]), broken.target.tensors["lm_head.weight"][rows])  # type: ignore[arg-type]
    assert result.remaining == ()
    # a repair that rests on how the drafter was trained says so
    assert any(
        "lm_head.weight added" in line and "only if the drafter was trained with that head" in line for line in result.repairs
    )


def test_the_original_is_never_touched_and_nothing_is_overwritten(tmp_path: Path) -> None:
    broken = Deployment()
    BREAKERS["lm-head-tied"][0](broken)
    evidence = broken.evidence(tmp_path)
    files = {file: file.read_bytes() for file in (tmp_path / "draft").iterdir()}
    result = repaired(evidence, examine(evidence), tmp_path / "repaired")
    assert any(line == '-  "tie_word_embeddings": true,' for line in result.repairs)
    assert {file: file.read_bytes() for file in (tmp_path / "draft").iterdir()} == files
    for out in (tmp_path / "repaired", tmp_path / "draft"):
        with pytest.raises(CheckpointError, match="is there already"):
            repaired(evidence, examine(evidence), out)


def test_nothing_is_written_into_the_drafters_own_folder(tmp_path: Path) -> None:
    broken = Deployment()
    BREAKERS["lm-head-tied"][0](broken)
    evidence = broken.evidence(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "draft")
    for out in (tmp_path / "draft" / "out", tmp_path / "link" / "deep" / "out"):
        with pytest.raises(UsageError, match="choose a folder beside it"):
            repaired(evidence, examine(evidence), out)


def test_nothing_to_repair_writes_nothing(tmp_path: Path) -> None:
    evidence = Deployment().evidence(tmp_path)
    result = repaired(evidence, examine(evidence), tmp_path / "repaired")
    assert (result.repairs, result.repaired) == ((), "")
    assert result.not_repaired == "nothing was found that needs mending"
    assert not (tmp_path / "repaired").exists()


def test_findings_without_a_repair_write_nothing_and_say_so(tmp_path: Path) -> None:
    broken = Deployment()
    BREAKERS["layers-out-of-range"][0](broken)
    evidence = broken.evidence(tmp_path)
    result = repaired(evidence, examine(evidence), tmp_path / "repaired")
    assert not (tmp_path / "repaired").exists()
    assert result.not_repaired == "no finding has one right repair that --fix knows; follow the remedies by hand"


def test_files_beside_are_copied_pickles_are_not(tmp_path: Path) -> None:
    broken = Deployment()
    BREAKERS["lm-head-tied"][0](broken)
    broken.draft.files = {"tokenizer_config.json": "{}", "optimizer.pt": "x", "README.md": "a head"}
    evidence = broken.evidence(tmp_path)
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "draft" / "notes.txt").symlink_to(tmp_path / "secret.txt")
    repaired(evidence, examine(evidence), tmp_path / "repaired")
    assert {file.name for file in (tmp_path / "repaired").iterdir()} == {
        "README.md",
        "config.json",
        "model.safetensors",
        "tokenizer_config.json",
    }


def test_every_repair_belongs_to_a_rule() -> None:
    assert set(REPAIRS) <= {rule.code for rule in RULES}


def test_the_command(tmp_path: Path) -> None:
    broken = Deployment()
    BREAKERS["vocabulary-map-absolute"][0](broken)
    inputs = broken.inputs(tmp_path)
    arguments = ["doctor", "--draft", str(inputs.draft), "--target", str(inputs.target)]
    done = CliRunner().invoke(app, [*arguments, "--fix", str(tmp_path / "out")])
    assert done.exit_code == 1
    assert "tensor d2t replaced: target ids turned into offsets" in done.output
    assert "Nothing above info is left in it." in done.output
    again = CliRunner().invoke(app, ["doctor", "--draft", str(tmp_path / "out"), "--target", str(inputs.target), "--json"])
    assert again.exit_code == 0
    assert json.loads(again.output)["findings"] == []
    without = CliRunner().invoke(app, ["doctor", "--launch", "vllm serve x", "--fix", str(tmp_path / "other")])
    assert isinstance(without.exception, UsageError)
