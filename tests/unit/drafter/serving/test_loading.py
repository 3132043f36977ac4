from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from breakeven.drafter.serving.loading import GenerationDefaults
from breakeven.errors import CheckpointError


def defaults_of(folder: Path, **config: object) -> GenerationDefaults:
    (folder / "generation_config.json").write_text(json.dumps(config))
    return GenerationDefaults.from_folder(folder)


def test_folder_without_generation_config(tmp_path: Path) -> None:
    assert GenerationDefaults.from_folder(tmp_path) == GenerationDefaults()


@pytest.mark.parametrize(("eos", "expected"), [(2, {2}), ([2, 128009], {2, 128009}), (None, set())])
def test_every_end_token_is_honoured(tmp_path: Path, eos: object, expected: set[int]) -> None:
    assert defaults_of(tmp_path, eos_token_id=eos).eos_token_ids == expected


def test_sampling_defaults_and_what_is_not_applied(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    defaults = defaults_of(tmp_path, temperature=0.6, top_p=0.9, top_k=20, repetition_penalty=1.0)
    assert (defaults.temperature, defaults.top_p) == (0.6, 0.9)
    assert ["top_k=20" in record.message for record in caplog.records] == [True]


@pytest.mark.parametrize("text", ["{", "[]", '{"eos_token_id": "two"}', '{"eos_token_id": Infinity}', "[" * 100_000])
def test_damaged_generation_config(tmp_path: Path, text: str) -> None:
    (tmp_path / "generation_config.json").write_text(text)
    with pytest.raises(CheckpointError, match="generation_config"):
        GenerationDefaults.from_folder(tmp_path)
