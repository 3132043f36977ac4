"""A drafter's acceptance as users have it: shares by position, accept lengths, or the JSON of an evaluation."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from breakeven.costs.acceptance_curve import AcceptanceCurve
from breakeven.errors import UsageError

__all__ = ["read_acceptance"]

MAX_BYTES = 20_000_000
MAX_DEPTH = 8
MAX_POSITIONS = 128
FORMS = (
    "expected shares by position (0.83,0.60,0.45: P(first i drafts accepted)), accept lengths by number of drafts (3:2.88 or "
    "2:2.36,4:3.08), or a JSON file of breakeven eval or breakeven read"
)


def read_acceptance(text: str) -> tuple[AcceptanceCurve, str]:
    """The curve, and what it was read from in words.

    Raises:
        UsageError: nothing of the expected forms, a file that cannot be read, or figures that contradict each other.
    """
    path = Path(text)
    if text.endswith(".json") or (path.is_file() and not _is_numbers(text)):
        return _from_file(path)
    if not _is_numbers(text):
        raise UsageError(f"--accept {text[:60]!a}: {FORMS}")
    parts = [part.strip() for part in text.split(",") if part.strip()]
    try:
        if any(":" in part for part in parts):
            pairs = [part.partition(":") for part in parts]
            lengths = {int(drafts): float(length) for drafts, _, length in pairs}
            if max(lengths) > MAX_POSITIONS or not all(math.isfinite(length) for length in lengths.values()):
                raise ValueError(f"expected at most {MAX_POSITIONS} drafts and finite lengths")
            return AcceptanceCurve.from_lengths(
                lengths
            ), f"accept length {', '.join(f'{al:g} at k={k}' for k, al in lengths.items())}"
        shares = tuple(float(part) for part in parts)
        if len(shares) == 1 and shares[0] > 1.0:
            raise ValueError("an accept length needs its number of drafts: write 3:2.88 for 2.88 with three drafts")
        return AcceptanceCurve(shares), f"joint acceptance {', '.join(f'{share:g}' for share in shares)}"
    except ValueError as error:
        raise UsageError(f"--accept {text[:60]!a}: {error}; {FORMS}") from None


def _is_numbers(text: str) -> bool:
    return bool(text) and all(character in "0123456789.,: " for character in text)


def _from_file(path: Path) -> tuple[AcceptanceCurve, str]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"--accept {path}: cannot be read ({error.strerror or error}); {FORMS}") from None
    if len(content) > MAX_BYTES:
        raise UsageError(f"--accept {path}: larger than {MAX_BYTES // 1_000_000} MB; expected the JSON of one evaluation")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise UsageError(f"--accept {path}: is not JSON; {FORMS}") from None
    found = _find(document, 0)
    if found is None:
        raise UsageError(f"--accept {path}: has no acceptance by position (a list named joint); {FORMS}")
    joint, rounds = found["joint"], found.get("num_rounds")
    low, high = found.get("accept_length_low"), found.get("accept_length_high")
    half = (high - low) / 2 if isinstance(low, float) and isinstance(high, float) and high >= low else None
    try:
        curve = AcceptanceCurve(
            tuple(float(share) for share in joint), rounds if type(rounds) is int and rounds > 0 else None, half_width=half
        )
    except (TypeError, ValueError) as error:
        raise UsageError(f"--accept {path}: {error}") from None
    return curve, f"{path.name}: accept length {curve.length(curve.num_measured).value:.2f} at k={curve.num_measured}"


def _find(document: Any, depth: int) -> dict[str, Any] | None:
    """The first object with a list named `joint`, nearest the top; figures without looping answers come before those with them."""
    if depth > MAX_DEPTH:
        return None
    if isinstance(document, dict):
        joint = document.get("joint")
        if isinstance(joint, list) and 0 < len(joint) <= MAX_POSITIONS:
            return document
        first = [document[key] for key in ("without_loops", "overall") if key in document]
        return next((found for value in (*first, *document.values()) if (found := _find(value, depth + 1)) is not None), None)
    if isinstance(document, list):
        return next((found for value in document[:100] if (found := _find(value, depth + 1)) is not None), None)
    return None
