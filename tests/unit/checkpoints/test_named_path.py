from __future__ import annotations

from pathlib import Path

import pytest

from breakeven.checkpoints.named_path import named_path, without_detours
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


def test_what_is_shown_has_no_detours_and_follows_links_as_the_system_does(tmp_path: Path) -> None:
    (tmp_path / "far" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far" / "deep")
    assert named_path("a/../b", tmp_path) == tmp_path / "b"
    assert named_path("link/../b", tmp_path) == tmp_path / "far" / "b"
    assert without_detours(Path("a/../b")) == Path.cwd() / "b"
    assert named_path("link/b", tmp_path) == tmp_path / "link" / "b", "a link by itself keeps its name"


@pytest.mark.parametrize("text", IMPOSSIBLE)
def test_what_no_file_system_holds(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        named_path(text, tmp_path)
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 250
    with pytest.raises(BreakevenError):
        resolve_model(text, tmp_path)
