"""Base units inside (seconds, bytes, tokens); conversion only when something is shown to a person."""

from __future__ import annotations

import math

__all__ = ["format_bytes", "format_duration", "format_rate", "format_ratio", "plural"]


def format_duration(duration_s: float) -> str:
    """`0.0123` -> "12.3 ms", `75` -> "1 min 15 s". NaN and infinity are shown as "n/a"."""
    if not math.isfinite(duration_s):
        return "n/a"
    if abs(duration_s) < 1.0:
        return f"{duration_s * 1e3:.3g} ms"
    if abs(duration_s) < 60.0:
        return f"{duration_s:.3g} s"
    minutes, seconds = divmod(round(duration_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def format_rate(tokens_per_s: float) -> str:
    """Tokens per second with three significant digits: "43.2 tok/s", "17 900 tok/s"."""
    if not math.isfinite(tokens_per_s):
        return "n/a"
    digits = 0 if tokens_per_s >= 100 else 1 if tokens_per_s >= 10 else 2
    return f"{tokens_per_s:,.{digits}f} tok/s".replace(",", " ")


def format_ratio(ratio: float) -> str:
    """A ratio to two decimals: "1.27x"."""
    return f"{ratio:.2f}x" if math.isfinite(ratio) else "n/a"


def format_bytes(num_bytes: float) -> str:
    """Decimal bytes, as disks and package indexes count them: "98.1 MB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(num_bytes) < 1000.0:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000.0
    return f"{num_bytes:.3g} TB"


def plural(count: int, noun: str) -> str:
    """ "1 launch", "3 launches"."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}{'es' if noun.endswith(('ch', 's')) else 's'}"
