"""Engines by name. A new engine is one line here and one package beside this file."""

from __future__ import annotations

import difflib

from breakeven.engines.base import Engine
from breakeven.engines.local.engine import LocalEngine
from breakeven.engines.sglang.engine import SglangEngine
from breakeven.engines.vllm.engine import VllmEngine
from breakeven.errors import PlanError

__all__ = ["ENGINES", "get_engine"]

ENGINES: dict[str, Engine] = {"local": LocalEngine(), "vllm": VllmEngine(), "sglang": SglangEngine()}


def get_engine(name: str) -> Engine:
    """The adapter called `name`.

    Raises:
        PlanError: no such engine; the message names the nearest one.
    """
    if name in ENGINES:
        return ENGINES[name]
    nearest = difflib.get_close_matches(name, ENGINES, n=1)
    advice = f"did you mean {nearest[0]!r}?" if nearest else f"known: {', '.join(sorted(ENGINES))}"
    raise PlanError(f"engine {name!a}: {advice}")
