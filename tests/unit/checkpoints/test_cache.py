from __future__ import annotations

import json
from pathlib import Path

import pytest

from breakeven.checkpoints.cache import MANIFEST_NAME, cache_dir, demo_model, demo_model_path, is_complete
from breakeven.errors import CheckpointError


def test_cache_is_where_the_variable_points(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BREAKEVEN_CACHE", str(tmp_path / "c"))
    assert demo_model_path("smollm2-135m-instruct") == tmp_path / "c" / "models" / "smollm2-135m-instruct"
    monkeypatch.setenv("BREAKEVEN_CACHE", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "breakeven"


def test_unknown_names_get_the_nearest_known_one() -> None:
    with pytest.raises(CheckpointError, match="did you mean 'smollm2-135m-instruct'"):
        demo_model("smollm2-135m-instuct")
    with pytest.raises(CheckpointError, match="known: smollm2-135m-instruct"):
        demo_model_path("../etc")


@pytest.mark.parametrize("manifest", ["", "[]", "{}", '{"file_bytes": 3}', '{"file_bytes": {"config.json": 4}}'])
def test_a_folder_is_complete_only_with_every_file_at_its_size(tmp_path: Path, manifest: str) -> None:
    assert not is_complete(tmp_path)
    (tmp_path / "config.json").write_text("123")
    (tmp_path / MANIFEST_NAME).write_text(json.dumps({"file_bytes": {"config.json": 3}}))
    assert is_complete(tmp_path)
    (tmp_path / MANIFEST_NAME).write_text(manifest)
    assert not is_complete(tmp_path)
