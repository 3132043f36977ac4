"""`breakeven fetch NAME`: a small real model for the demo and the tests, into the cache folder."""

from __future__ import annotations

import typer

from breakeven.checkpoints.cache import DEMO_MODELS, demo_model
from breakeven.cli.escaping import print_result

__all__ = ["fetch"]


NAMES = ", ".join(model.name for model in DEMO_MODELS)


def fetch(name: str = typer.Argument(help=f"One of: {NAMES}.")) -> None:
    """Fetch a small model into the cache folder; does nothing when it is already there."""
    model = demo_model(name)
    from breakeven.drafter import fetching

    fetching.fetch(model, print_result)
