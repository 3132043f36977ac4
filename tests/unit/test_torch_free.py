"""Everything but `breakeven.drafter` works where torch is not installed: proved by blocking it."""

from __future__ import annotations

import subprocess
import sys

BLOCK_TORCH = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "transformers", "gguf"}:
            raise ImportError(f"{name} is blocked by this test")
        return None

sys.meta_path.insert(0, Blocked())
"""

IMPORT_EVERYTHING = """
import importlib, pkgutil, breakeven
names = [m.name for m in pkgutil.walk_packages(breakeven.__path__, "breakeven.", onerror=lambda name: None)
         if not m.name.startswith("breakeven.drafter") and not m.name.endswith("__main__")]
for name in names:
    importlib.import_module(name)
print(len(names))
"""

EVERY_HELP = """
import sys
from typer.main import get_command
from breakeven.cli import app
command = get_command(app)
paths = [[]]
for name, sub in command.commands.items():
    paths.append([name])
    paths.extend([name, inner] for inner in getattr(sub, "commands", {}))
for path in paths:
    try:
        command.main([*path, "--help"], prog_name="breakeven", standalone_mode=False)
    except SystemExit as leave:
        assert not leave.code, path
print("commands:", len(paths), file=sys.stderr)
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BLOCK_TORCH + program], capture_output=True, text=True, timeout=120, check=False)


def test_block_works() -> None:
    blocked = run("import torch")
    assert blocked.returncode != 0
    assert "blocked by this test" in blocked.stderr


def test_every_module_outside_drafter_imports() -> None:
    imported = run(IMPORT_EVERYTHING)
    assert imported.returncode == 0, imported.stderr
    assert int(imported.stdout) > 20


def test_every_command_shows_its_help() -> None:
    helped = run(EVERY_HELP)
    assert helped.returncode == 0, helped.stderr
    assert int(helped.stderr.strip().rpartition(" ")[2]) >= 1
