"""Names of models as people write them, reduced to family and generation, so that a drafter's and a target's can be compared.

"moonshotai/Kimi-K2.5-NVFP4" and "kimi-k25-eagle3" are both family kimi, generation k25. Precision, organisation and the drafter's
own words do not count.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["ModelName", "model_name"]

_DRAFTER_WORD = re.compile(r"eagle|speculator|draft|dflash|dspark|mtp|head")
_PRECISION = re.compile(r"(?:nv|mx)?fp\d+|bf16|w\d+a\d+|int[48]|awq|gptq|gguf|q\d(?:_\w+)?|quantized|dynamic|block|mxfp4")
_SIZE = re.compile(r"\d+(?:\.\d+)?[bm](?:-a\d+b)?|a\d+b")
_GENERATION = re.compile(r"[a-z]?\d+(?:\.\d+)?|\d{4}")
FAMILIES = (
    "kimi",
    "qwen",
    "llama",
    "deepseek",
    "glm",
    "minimax",
    "gpt-oss",
    "gemma",
    "mistral",
    "phi",
    "smollm",
    "nemotron",
    "granite",
)
_FAMILY = re.compile(rf"(?<![a-z])(?:{'|'.join(FAMILIES)})")
VARIANTS = ("thinking", "coder", "code", "instruct", "base", "vl", "next", "chat", "flash", "air")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelName:
    """generation: the first number after the family, without dots (k2.5 -> k25); sizes and variants as sets of words."""

    family: str
    generation: str
    sizes: frozenset[str]
    variants: frozenset[str]


def model_name(text: str) -> ModelName | None:
    """The last family named in a path or hub id; None where no known one is."""
    for part in reversed(re.split(r"[/\\]+|--", text.lower())):
        found = _FAMILY.search(part)
        if found is None:
            continue
        # what follows the drafter's own word is its version, not the model's
        family, rest = found[0], _PRECISION.sub(" ", _DRAFTER_WORD.split(part[found.end() :])[0])
        words = [word for word in re.split(r"[-_ ]+", rest) if word]
        sizes = frozenset(word for word in words if _SIZE.fullmatch(word))
        numbers = [word for word in words if word not in sizes and _GENERATION.fullmatch(word)]
        return ModelName(
            family=family,
            generation=numbers[0].replace(".", "") if numbers else "",
            sizes=sizes,
            variants=frozenset(word for word in words if word in VARIANTS),
        )
    return None
