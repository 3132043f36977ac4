"""What has to be alike before two reported figures are compared: the setting of the arms, and how each point was measured."""

from __future__ import annotations

import re

from breakeven.verdict.reported.arms import Point, ReportedArm

__all__ = ["alike", "is_of_lengths", "same", "same_setting", "unlike"]

# mean lengths of requests further apart than this are another workload
SAME_LENGTH = 1.1


def same_setting(one: ReportedArm, other: ReportedArm) -> bool:
    """No reported difference in what the target runs on, how it is split and which weights it has."""
    return (
        same(one.tensor_parallel, other.tensor_parallel)
        and same(_squeezed(one.hardware), _squeezed(other.hardware))
        and same(_squeezed(one.quantization), _squeezed(other.quantization))
    )


def alike(one: ReportedArm, other: ReportedArm) -> bool:
    """Whether two arms do the same work a round: engine, method and a known shape, and no reported difference beside."""
    return (
        one.shape.num_drafted is not None
        and (one.engine, one.method, one.shape) == (other.engine, other.method, other.shape)
        and same_setting(one, other)
        and same(one.topk, other.topk)
    )


def unlike(mine: Point, plain: Point) -> str:
    """How the measurement of two points differs, in words; empty where nothing that was reported does."""
    told = [
        f"{what} of {ours} tokens against {theirs}"
        for what, ours, theirs in (
            ("prompts", mine.input_tokens, plain.input_tokens),
            ("replies", mine.output_tokens, plain.output_tokens),
        )
        if ours is not None and theirs is not None and not 1.0 / SAME_LENGTH <= ours / theirs <= SAME_LENGTH
    ]
    mine_under, plain_under = dict(mine.conditions), dict(plain.conditions)
    told += [
        f"{name.replace('_', ' ')} {mine_under[name]} against {plain_under[name]}"
        for name in mine_under
        if name in plain_under and _squeezed(mine_under[name]) != _squeezed(plain_under[name])
    ]
    return " and ".join(told)


def is_of_lengths(told: str) -> bool:
    """Whether all that `unlike` told is the length of requests."""
    return all(part.startswith(("prompts of ", "replies of ")) for part in told.split(" and "))


def same(one: object, other: object) -> bool:
    return one is None or other is None or one == other


def _squeezed(text: str | None) -> str | None:
    """ "8x H100" and "8xh100" are one machine, "0.70" and "0.7" one number."""
    if not text:
        return None
    try:
        return f"{float(text):g}"
    except ValueError:
        return re.sub(r"[^a-z0-9]", "", text.lower()) or None
