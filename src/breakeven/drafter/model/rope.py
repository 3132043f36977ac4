"""Rotary positions: the frequencies under each scaling that the embedded engine computes, and what multiplies cos and sin.

Shapes: D head dimension.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from breakeven.errors import CheckpointError

__all__ = ["MAX_SCALAR", "inverse_frequencies", "rope_magnitude"]

MAX_SCALAR = 1e12


def inverse_frequencies(rope: Mapping[str, object], head_dim: int, theta: float) -> Tensor:
    """RoPE inverse frequencies [D / 2] in float32 for type default, linear, llama3 or yarn.

    Sources: llama3 as in Llama 3.1's published reference code: wavelengths above `original / low_freq_factor` are stretched by
    `factor`, those below `original / high_freq_factor` are kept, and between the two the change is linear in frequency. yarn
    (arXiv 2309.00071, section 3.2): the share that is kept falls linearly in the index of the frequency, from those that turn
    `beta_fast` times within the original context to those that turn `beta_slow` times.

    Raises:
        CheckpointError: another RoPE type, which would silently be a different function.
    """
    frequencies = 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    kind = _rope_type(rope)
    if kind == "default":
        return frequencies
    if kind not in ("linear", "llama3", "yarn"):
        # "dynamic" too: vLLM fixes its base for the longest context, transformers moves it with the length: two functions
        raise CheckpointError(f"rope type {kind!r} is not one the embedded engine computes (default, linear, llama3, yarn)")
    factor = _number(rope, "factor")
    if kind == "linear":
        return frequencies / factor
    original = _number(rope, "original_max_position_embeddings")
    if kind == "llama3":
        low, high = _number(rope, "low_freq_factor"), _number(rope, "high_freq_factor")
        wavelengths = 2 * math.pi / frequencies
        kept_share = ((original / wavelengths - low) / (high - low)).clamp(0.0, 1.0)
    else:
        kept_share = _yarn_kept_share(rope, head_dim, theta, original)
    return frequencies * kept_share + frequencies / factor * (1.0 - kept_share)


def rope_magnitude(rope: Mapping[str, object]) -> float:
    """What cos and sin are multiplied by: 1 but for yarn, which sharpens attention over stretched contexts (its section 3.4)."""
    if _rope_type(rope) != "yarn":
        return 1.0
    if rope.get("attention_factor") is not None:
        return _number(rope, "attention_factor")
    stretch = math.log(max(_number(rope, "factor"), 1.0))
    if rope.get("mscale") and rope.get("mscale_all_dim"):
        return (0.1 * _number(rope, "mscale") * stretch + 1.0) / (0.1 * _number(rope, "mscale_all_dim") * stretch + 1.0)
    return 0.1 * stretch + 1.0


def _yarn_kept_share(rope: Mapping[str, object], head_dim: int, theta: float, original: float) -> Tensor:
    def index_of(turns: float) -> float:
        return head_dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    first = index_of(_number(rope, "beta_fast") if rope.get("beta_fast") is not None else 32.0)
    last = index_of(_number(rope, "beta_slow") if rope.get("beta_slow") is not None else 1.0)
    if rope.get("truncate", True):
        first, last = float(math.floor(first)), float(math.ceil(last))
    first, last = max(first, 0.0), min(last, head_dim - 1.0)
    if first == last:
        last += 0.001  # as both engines do, so that the ramp has a slope
    return 1.0 - ((torch.arange(head_dim // 2, dtype=torch.float32) - first) / (last - first)).clamp(0.0, 1.0)


def _rope_type(rope: Mapping[str, object]) -> object:
    return rope.get("rope_type") or rope.get("type") or "default"


def _number(rope: Mapping[str, object], key: str) -> float:
    value = rope.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= MAX_SCALAR:
        raise CheckpointError(f"rope parameters {dict(rope)} lack a positive number for {key!r}")
    return float(value)
