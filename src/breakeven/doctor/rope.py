"""Rotary position settings of a configuration, read from wherever transformers, vLLM and SGLang have kept them.

Newer configurations hold one table, `rope_parameters`; older ones `rope_theta` beside `rope_scaling`. Exporters write both, so
they can disagree. Multimodal and speculators folders nest them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["DEFAULT_THETA", "Rope", "read_rope"]

# What transformers' Llama configuration assumes without the key.
DEFAULT_THETA = 10_000.0
_SCALING_KEYS = (
    "factor",
    "original_max_position_embeddings",
    "low_freq_factor",
    "high_freq_factor",
    "beta_fast",
    "beta_slow",
    "mscale",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """theta: None where no key gives it. kind: default, linear, llama3, yarn, ... scaling: its numbers, without the kind."""

    theta: float | None
    kind: str
    scaling: Mapping[str, float]
    partial: float | None
    interleaved: bool | None
    max_positions: int | None
    contradictions: tuple[str, ...]

    @property
    def effective_theta(self) -> float:
        return self.theta if self.theta is not None else DEFAULT_THETA


def read_rope(config: Mapping[str, Any]) -> Rope:
    """From a flat configuration (`language_config` of a target, the layer's table of a speculators folder)."""
    table, old = _table(config.get("rope_parameters")), _table(config.get("rope_scaling"))
    outer_theta, inner_theta = _number(config.get("rope_theta")), _number(table.get("rope_theta"))
    contradictions = []
    if outer_theta is not None and inner_theta is not None and not math.isclose(outer_theta, inner_theta):
        contradictions.append(f"config.json: rope_theta is {outer_theta:g}, rope_parameters.rope_theta is {inner_theta:g}")
    if table and old and _kind(table) != _kind(old):
        contradictions.append(f"config.json: rope_parameters is of type {_kind(table)!a}, rope_scaling of type {_kind(old)!a}")
    for key in _SCALING_KEYS:
        one, other = _number(table.get(key)), _number(old.get(key))
        if one is not None and other is not None and not math.isclose(one, other):
            contradictions.append(f"config.json: rope_parameters.{key} is {one:g}, rope_scaling.{key} is {other:g}")
    scaling = table if _kind(table) != "default" else old
    theta = inner_theta if inner_theta is not None else outer_theta if outer_theta is not None else _number(old.get("rope_theta"))
    positions = config.get("max_position_embeddings")
    partial = _number(config.get("partial_rotary_factor")) or _number(table.get("partial_rotary_factor"))
    interleaved = config.get("rope_interleave", table.get("rope_interleave"))
    return Rope(
        theta=theta,
        kind=_kind(scaling),
        scaling={key: number for key in _SCALING_KEYS if (number := _number(scaling.get(key))) is not None},
        partial=partial,
        interleaved=interleaved if isinstance(interleaved, bool) else None,
        max_positions=positions if type(positions) is int and 0 < positions < 1 << 40 else None,
        contradictions=tuple(contradictions),
    )


def _table(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        return {}
    # one table for each kind of layer: full attention is the one that a drafter's layer resembles
    inner = value.get("full_attention")
    return inner if isinstance(inner, dict) else value


def _kind(table: Mapping[str, Any]) -> str:
    kind = table.get("rope_type", table.get("type"))
    return kind if isinstance(kind, str) and kind.isprintable() and len(kind) < 40 else "default"


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
