"""Reading figures as people report them."""

from __future__ import annotations

from breakeven.printed.definitions import Surface, draft_shape
from breakeven.printed.figures import PrintedFigure
from breakeven.printed.reading import read_printed
from breakeven.printed.result import Reading
from breakeven.versions import Version


def read(
    length: str | None,
    rate: str | None,
    flags: tuple[int | None, int | None, int | None] = (3, 1, 4),
    version: str | None = None,
    engine: str = "sglang",
    surface: Surface = "log",
    method: str = "eagle3",
    drafted_share: float | None = None,
) -> Reading:
    steps, topk, draft_tokens = flags
    return read_printed(
        engine=engine,
        shape=draft_shape(engine, steps=steps, topk=topk, draft_tokens=draft_tokens),
        length=PrintedFigure.parse(length) if length else None,
        rate=PrintedFigure.parse(rate) if rate else None,
        version=Version.parse(version) if version else None,
        surface=surface,
        method=method,
        drafted_share=drafted_share,
    )
