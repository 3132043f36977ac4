"""Public measurements that reported figures are held against: one row each, with where it was published."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = [
    "LAUNCH_DRIFT",
    "PUBLIC_ACCEPT_LENGTHS",
    "QUANTIZATION_LOSSES",
    "PublicAcceptLength",
    "QuantizationLoss",
    "public_accept_length",
    "quantization_loss",
]

# Throughput of one configuration drifts by this much within and between launches of the same server: usual, and not rare.
LAUNCH_DRIFT = (0.10, 0.30)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicAcceptLength:
    """What published heads reach on a target with `num_drafted` drafts in a chain."""

    target: str
    num_drafted: int
    low: float
    high: float
    source: str


PUBLIC_ACCEPT_LENGTHS: tuple[PublicAcceptLength, ...] = (
    PublicAcceptLength(
        target="kimi-k2.5", num_drafted=3, low=2.69, high=3.34, source="card of lightseekorg/kimi-k2.5-eagle3, MT-Bench to MATH-500"
    ),
    PublicAcceptLength(target="kimi-k2.5", num_drafted=4, low=3.07, high=3.07, source="vLLM PR 35966, GSM8K"),
    PublicAcceptLength(
        target="kimi-k2-instruct", num_drafted=3, low=2.39, high=3.49, source="card of AQ-MedAI's head, MT-Bench to MATH-500"
    ),
    PublicAcceptLength(target="kimi-k2.6", num_drafted=3, low=2.79, high=3.20, source="sglang PR 26506 and ATOM PR 943, GSM8K"),
    PublicAcceptLength(
        target="minimax-m3", num_drafted=3, low=2.80, high=3.21, source="SpecForge cards, mean of categories to GSM8K"
    ),
    PublicAcceptLength(target="qwen3-235b", num_drafted=3, low=2.88, high=2.88, source="SpecForge card, GSM8K"),
    PublicAcceptLength(target="qwen3-coder-480b", num_drafted=3, low=3.50, high=3.50, source="SpecForge card, HumanEval"),
    PublicAcceptLength(target="qwen3-30b-a3b", num_drafted=3, low=2.1, high=3.4, source="SpecForge cards, finance to maths"),
    PublicAcceptLength(target="qwen3-8b", num_drafted=3, low=2.26, high=2.26, source="card of Red Hat's head"),
    PublicAcceptLength(target="gpt-oss-20b", num_drafted=3, low=2.24, high=2.70, source="EAGLE-3 cards"),
    PublicAcceptLength(target="llama-3.1-8b", num_drafted=3, low=2.60, high=2.79, source="vLLM PR 20780 and Red Hat's card"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizationLoss:
    """Share of accepted tokens that quantizing the target costs in public same-head measurements."""

    kind: str
    pattern: str
    low: float
    high: float
    source: str


QUANTIZATION_LOSSES: tuple[QuantizationLoss, ...] = (
    QuantizationLoss(
        kind="4-bit weights and activations",
        pattern=r"nvfp4|mxfp4|w4a4|fp4",
        low=0.0,
        high=0.30,
        source="Atlas PR 218 (30 % at the worst), sglang PR 26506 (none)",
    ),
    QuantizationLoss(
        kind="weight-only or 8-bit quantization",
        pattern=r"int4|w4a16|awq|gptq|gguf|q[2-8]_|int8|w8a|fp8|w4a8|4.?bit|8.?bit",
        low=0.0,
        high=0.03,
        source="InferenceX PR 3304, z-lab/dflash issue 152, arXiv 2505.22179",
    ),
)


def public_accept_length(target: str | None, num_drafted: int | None) -> PublicAcceptLength | None:
    """The row whose target name is in `target` as a whole ("kimi-k2.5" is in "org/Kimi-K2.5 INT4", not in "Kimi-K2.51")."""
    if not target:
        return None
    name = re.sub(r"[\s_]+", "-", target.lower())
    for row in PUBLIC_ACCEPT_LENGTHS:
        if row.num_drafted == num_drafted and re.search(rf"(?<![a-z0-9]){re.escape(row.target)}(?![a-z0-9]|\.\d)", name):
            return row
    return None


def quantization_loss(quantization: str | None) -> QuantizationLoss | None:
    if not quantization:
        return None
    return next((row for row in QUANTIZATION_LOSSES if re.search(row.pattern, quantization.lower())), None)
