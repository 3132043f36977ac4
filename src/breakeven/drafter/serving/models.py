"""The target and its drafter read from their folders, with room in their caches for every slot."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import torch

from breakeven.checkpoints.folder import open_folder
from breakeven.drafter.model.eagle3 import Eagle3Config, Eagle3Weights
from breakeven.drafter.model.llama import LlamaConfig, LlamaWeights
from breakeven.drafter.serving.drafting import Drafter, Eagle3Drafter, NgramDrafter
from breakeven.drafter.serving.layers import KVCache, Rotary
from breakeven.drafter.serving.target import Target
from breakeven.errors import UsageError

__all__ = ["DTYPES", "Models", "open_models"]

logger = logging.getLogger(__name__)

DTYPES = {"auto": torch.float32, "float32": torch.float32, "bfloat16": torch.bfloat16}
DEFAULT_CONTEXT = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """`drafter` None serves without speculation; `context_length` in tokens, prompt and answer together."""

    target: Target
    drafter: Drafter | None
    context_length: int


def open_models(
    target: Path,
    *,
    method: str | None,
    num_draft_tokens: int,
    drafter: Path | None,
    ngram_max: int,
    ngram_min: int,
    dtype: str,
    max_num_seqs: int,
    context_length: int | None,
) -> Models:
    """Read the model (and drafter) folders.

    Raises:
        UsageError: options that do not go together.
        CheckpointError: a folder that cannot be read, is not supported, or does not fit the other.
    """
    if method not in (None, "ngram", "eagle3"):
        raise UsageError(f"method {method!r} is unknown; expected ngram or eagle3")
    if method is not None and num_draft_tokens < 1:
        raise UsageError(f"num_draft_tokens is {num_draft_tokens}; expected at least 1")
    if method == "eagle3" and drafter is None:
        raise UsageError("method eagle3 needs a drafter folder")
    if not 1 <= ngram_min <= ngram_max:
        raise UsageError(f"n-gram sizes from {ngram_min} to {ngram_max} make no sense; expected 1 <= min <= max")
    if max_num_seqs < 1:
        raise UsageError(f"max_num_seqs is {max_num_seqs}; expected at least 1")
    if dtype not in DTYPES:
        raise UsageError(f"dtype {dtype!r} is unknown; expected one of {', '.join(DTYPES)}")
    folder = open_folder(target)
    config = LlamaConfig.from_folder(folder)
    context = min(config.max_positions, DEFAULT_CONTEXT) if context_length is None else context_length
    if not 2 <= context <= config.max_positions:
        raise UsageError(f"context length is {context}; expected 2 to the model's {config.max_positions} positions")
    # A round may run k drafts past the last position that is kept.
    positions = context + num_draft_tokens + 1
    tensor_dtype = DTYPES[dtype]
    # Heads are opened before weights are read: a wrong drafter is reported in milliseconds.
    head = open_folder(drafter) if method == "eagle3" and drafter is not None else None
    head_config = Eagle3Config.from_folder(head, config) if head else None
    with torch.inference_mode():
        weights = LlamaWeights.from_folder(folder, config, tensor_dtype)
        model = Target(
            config, weights, KVCache(config, max_num_seqs, positions, tensor_dtype), Rotary(config, positions, tensor_dtype)
        )
        proposer: Drafter | None = None
        if method == "ngram":
            proposer = NgramDrafter(max_num_seqs, ngram_min, ngram_max)
        elif head is not None and head_config is not None:
            proposer = Eagle3Drafter(
                head_config,
                Eagle3Weights.from_folder(head, head_config, tensor_dtype),
                model.embed,
                KVCache(head_config.shape, max_num_seqs, positions, tensor_dtype),
                Rotary(head_config.shape, positions, tensor_dtype),
            )
            logger.info("Using Eagle3 auxiliary layers %s from %s", head_config.auxiliary_layers, head_config.auxiliary_source)
    return Models(target=model, drafter=proposer, context_length=context)
