"""Whatever code, docs and examples name of this repository is there: pages, files, folders, links from page to page."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
READ = (".py", ".md", ".yaml", ".toml", ".txt", ".j2")
FOLDERS = ("src", "docs", "examples", "benchmarks", "tests")
FILES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "Makefile", "pyproject.toml")] + [
    file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*")) if file.suffix in READ and "egg-info" not in str(file)
]
# a path from the root; one that goes on from something else (~/, {folder}/, ../) is not ours to check
PATH = re.compile(r"(?<![\w./~{}$-])(?:docs|src/breakeven|tests|benchmarks|examples|requirements)/[\w./-]*\w")
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)")
ROOMS = "|".join(sorted(path.name for path in (ROOT / "src" / "breakeven").iterdir() if (path / "__init__.py").is_file()))
MODULE = re.compile(rf"(?<![\w./-])(?:{ROOMS})/[\w/]*\w+\.py\b")
# what the commands on the page write
WRITTEN = ("examples/smollm2-135m-eagle3/prompts.jsonl", "examples/smollm2-135m-eagle3/train.jsonl")


def missing(text: str, folder: Path, *, is_page: bool) -> set[str]:
    found = {path for path in PATH.findall(text) if path not in WRITTEN and not (ROOT / path).exists()}
    found |= {path for path in MODULE.findall(text) if not (ROOT / "src" / "breakeven" / path).exists()}
    return found | {link for link in LINK.findall(text) if is_page and not (folder / link).exists()}


def test_what_is_mentioned_exists() -> None:
    absent = {
        str(file.relative_to(ROOT)): found
        for file in FILES
        if file != Path(__file__)
        and (found := missing(file.read_text(encoding="utf-8", errors="replace"), file.parent, is_page=file.suffix == ".md"))
    }
    assert absent == {}


def test_what_does_not_exist_is_noticed() -> None:
    text = "see docs/nowhere.md, `experiment/nothing.py` and [this](absent.md#part), ~/docs/x.md, docs/log.md, experiment/plan.py"
    assert missing(text, ROOT / "docs", is_page=True) == {"docs/nowhere.md", "experiment/nothing.py", "absent.md"}
    assert missing(text, ROOT / "docs", is_page=False) == {"docs/nowhere.md", "experiment/nothing.py"}
