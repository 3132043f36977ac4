"""How long the rest will take, where many things are under way at once and end in any order.

Time since the start says little: models are loaded and compiled in it, and of the first batch the shortest answers end first. So
the pace is that of what ended after the first end, and nothing is said before it rests on enough of them. Simulated with 32 to 2048
answers at once, estimates then began at 0.6 to 1.9 times the truth; time over answers, told from the fourth on, at 1.2 to 91 times.
"""

from __future__ import annotations

__all__ = ["TimeLeft"]

KNOWN_FROM_ENDS = 32
# many may end within one look at a batch
KNOWN_FROM_S = 5.0


class TimeLeft:
    """One piece of work, asked again and again while it goes on."""

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None

    def __call__(self, num_done: int, num_left: int, now_s: float) -> float | None:
        """Seconds until `num_left` more are done; None while that is not known, and at the end.

        num_done: those that took time, without what was there before or was refused at once. now_s: on any steady clock.
        """
        if self._first is None:
            if num_done:
                self._first = (num_done, now_s)
            return None
        num_since, seconds = num_done - self._first[0], now_s - self._first[1]
        if not num_left or num_since < KNOWN_FROM_ENDS or seconds < KNOWN_FROM_S:
            return None
        return num_left * seconds / num_since
