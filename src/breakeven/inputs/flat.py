"""Tables within tables as one table whose keys are dotted, to be compared key by key."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["flat"]


def flat(table: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """(key, value) with keys such as `arms.plain.url` and `load.0.concurrency`; an empty table is a value of its own, a list of
    anything but tables its JSON."""
    waiting: list[tuple[str, object]] = [("", dict(table))]
    while waiting:
        key, value = waiting.pop(0)
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            value = {str(place): item for place, item in enumerate(value)}
        if isinstance(value, dict) and value:
            waiting.extend((f"{key}.{name}" if key else name, inner) for name, inner in value.items())
        else:
            # as text, because a message that a list differs from a list says nothing
            yield key, json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
