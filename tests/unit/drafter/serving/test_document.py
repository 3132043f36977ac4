"""docs/local-engine.md lists the flags that there are."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from breakeven.drafter.serving.options import ServerOptions

DOCUMENT = Path(__file__).parents[4] / "docs" / "local-engine.md"


def test_every_flag_is_documented_and_no_other() -> None:
    table = DOCUMENT.read_text().split("## Flags")[1].split("## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    documented = {flag for row in rows for flag in re.findall(r"--[a-z-]+", row)}
    assert documented == {"--" + field.name.replace("_", "-") for field in fields(ServerOptions)}
