"""How far predictions of each kind were off where the answer was known: the error bar that every prediction carries.

The figures come from `benchmarks/prediction.py`, which leaves out what is to be predicted, predicts it from the rest and compares;
a test runs it again and holds these rows to it. `half` is exceeded by half of the predictions, `tenth` by one in ten, and the
interval printed with a prediction is `tenth` either way.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["KINDS", "PredictionError", "data_set_error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionError:
    """Relative errors of a predicted speedup (0.10: a factor of 1.1 either way), of `num` predictions for `num_targets` targets."""

    what: str
    half: float
    tenth: float
    num: int
    num_targets: int


KINDS: dict[str, PredictionError] = {
    "one data set": PredictionError(
        what="from one other data set of the same configuration", half=0.05, tenth=0.21, num=1456, num_targets=14
    ),
    "two data sets": PredictionError(
        what="from two other data sets of the same configuration", half=0.05, tenth=0.18, num=3492, num_targets=13
    ),
    "three or more data sets": PredictionError(
        what="from at least three other data sets of the same configuration", half=0.02, tenth=0.10, num=254, num_targets=13
    ),
    "another drafter": PredictionError(
        what="from another drafter of the same method and shape on the same deployment",
        half=0.03,
        tenth=0.10,
        num=140,
        num_targets=2,
    ),
    "another method": PredictionError(
        what="from a drafter of another method with as many drafts on the same deployment",
        half=0.18,
        tenth=0.21,
        num=12,
        num_targets=1,
    ),
    "other numbers of drafts": PredictionError(
        what="from other numbers of drafts of the same drafter and data set", half=0.03, tenth=0.12, num=147, num_targets=7
    ),
    "kernel tables": PredictionError(what="from kernel tables without hardware", half=0.10, tenth=0.40, num=18, num_targets=4),
}

# how many measured data sets a kind is for
_BY_DATA_SETS = {1: "one data set", 2: "two data sets", 3: "three or more data sets"}


def data_set_error(num_known: int) -> PredictionError:
    """The row for a prediction from `num_known` (at least one) other data sets."""
    return KINDS[_BY_DATA_SETS[min(num_known, 3)]]
