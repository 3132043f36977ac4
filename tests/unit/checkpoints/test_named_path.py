from __future__ import annotations

from pathlib import Path

import pytest

from breakeven.checkpoints.named_path import named_path
from breakeven.checkpoints.resolve import resolve_model
from breakeven.errors import BreakevenError, UsageError

IMPOSSIBLE = ["~nobody-of-this-name/x", "a\0b", "\ud800", "x" * 5000, f"/{'x' * 300}/y"]


def test_relative_absolute_and_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert named_path("a/b", tmp_path) == tmp_path / "a" / "b"
    assert named_path("/a", tmp_path) == Path("/a")
    assert named_path("~/a", tmp_path) == tmp_path / "home" / "a"
    (tmp_path / "file").touch()
    assert named_path("file/below", tmp_path) == tmp_path / "file" / "below"


@pytest.mark.parametrize("text", IMPOSSIBLE)
def test_what_no_file_system_holds(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        named_path(text, tmp_path)
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 250
    with pytest.raises(BreakevenError):
        resolve_model(text, tmp_path)
