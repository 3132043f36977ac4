from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from breakeven.checkpoints.resolve import hub_cache_dir, resolve_model
from breakeven.errors import CheckpointError

COMMIT, OTHER = "a" * 40, "b" * 40


@pytest.fixture(autouse=True)
def _caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in ("HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("BREAKEVEN_CACHE", str(tmp_path / "breakeven"))


@pytest.fixture
def snapshot(tmp_path: Path) -> Callable[..., Path]:
    def make(commit: str, ref: str | None = None) -> Path:
        repository = tmp_path / "hub" / "models--owner--name.v1"
        folder = repository / "snapshots" / commit
        folder.mkdir(parents=True)
        if ref is not None:
            (repository / "refs").mkdir(exist_ok=True)
            (repository / "refs" / ref).write_text(commit)
        return folder

    return make


def test_folders_relative_absolute_and_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "models" / "m"
    folder.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve_model("models/m", tmp_path) == folder
    assert resolve_model(str(folder), Path("/elsewhere")) == folder
    assert resolve_model("~/models/m", Path("/elsewhere")) == folder


def test_a_path_that_goes_up_is_given_without_the_detour(tmp_path: Path) -> None:
    folder, plans = tmp_path / "models" / "m", tmp_path / "elsewhere" / "plans"
    folder.mkdir(parents=True)
    plans.mkdir(parents=True)
    assert str(resolve_model("../../models/m", plans)) == str(folder)
    # up from where a link leads, as the system understands it
    (tmp_path / "link").symlink_to(plans)
    assert str(resolve_model("link/../../models/m", tmp_path)) == str(folder)


def test_demo_models(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"not fetched yet, .* run: breakeven fetch smollm2-135m-instruct$"):
        resolve_model("demo:smollm2-135m-instruct", tmp_path)
    folder = tmp_path / "breakeven" / "models" / "smollm2-135m-instruct"
    folder.mkdir(parents=True)
    assert resolve_model("demo:smollm2-135m-instruct", tmp_path) == folder
    with pytest.raises(CheckpointError, match="did you mean 'smollm2-135m-instruct'"):
        resolve_model("demo:smollm2-135m-instuct", tmp_path)


def test_a_hub_id_follows_main(snapshot: Callable[..., Path], tmp_path: Path) -> None:
    main = snapshot(COMMIT, "main")
    other = snapshot(OTHER, "v2")
    assert resolve_model("owner/name.v1", tmp_path) == main
    assert resolve_model("owner/name.v1@v2", tmp_path) == other
    assert resolve_model(f"owner/name.v1@{OTHER}", tmp_path) == other
    with pytest.raises(CheckpointError, match=rf"snapshots {COMMIT[:12]}, {OTHER[:12]}.*--revision v3"):
        resolve_model("owner/name.v1@v3", tmp_path)


def test_without_refs_a_single_snapshot_is_meant_and_two_are_not(snapshot: Callable[..., Path], tmp_path: Path) -> None:
    only = snapshot(COMMIT)
    assert resolve_model("owner/name.v1", tmp_path) == only
    snapshot(OTHER)
    with pytest.raises(CheckpointError, match="holds the snapshots"):
        resolve_model("owner/name.v1", tmp_path)


def test_a_ref_that_leaves_the_cache_is_not_followed(snapshot: Callable[..., Path], tmp_path: Path) -> None:
    snapshot(COMMIT, "main")
    snapshot(OTHER)
    refs = tmp_path / "hub" / "models--owner--name.v1" / "refs" / "main"
    refs.write_text("../../../../etc")
    with pytest.raises(CheckpointError, match="holds the snapshots"):
        resolve_model("owner/name.v1", tmp_path)


def test_a_local_folder_wins_over_the_hub(snapshot: Callable[..., Path], tmp_path: Path) -> None:
    snapshot(COMMIT, "main")
    (tmp_path / "owner" / "name.v1").mkdir(parents=True)
    assert resolve_model("owner/name.v1", tmp_path) == tmp_path / "owner" / "name.v1"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "owner/name",
            r"neither a folder .* nor in the hub cache .*models--owner--name does not exist.* run: hf download owner/name$",
        ),
        ("no-such-folder", "there is no folder .*no-such-folder; expected a model folder, demo:NAME or a hub id"),
        ("../x/y", "there is no folder"),
        ("a/b/c", "there is no folder"),
        ("file", "file is a file"),
        ("", "a model is named ''"),
        ("a\x1b[2J", r"named 'a\\x1b\[2J'"),
    ],
)
def test_what_is_not_here_says_what_to_run(text: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match=complaint):
        resolve_model(text, tmp_path)


def test_the_hub_cache_follows_its_own_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert hub_cache_dir() == tmp_path / "hub"
    monkeypatch.delenv("HF_HUB_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert hub_cache_dir() == Path("/x/huggingface/hub")
    monkeypatch.setenv("HF_HOME", "/h")
    assert hub_cache_dir() == Path("/h/hub")
    monkeypatch.setenv("HUGGINGFACE_HUB_CACHE", "/old")
    assert hub_cache_dir() == Path("/old")
