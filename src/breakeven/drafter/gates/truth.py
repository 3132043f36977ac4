"""The target as transformers runs it: tokens, states and logits that owe nothing to this project's own code.

Shapes: T tokens, H hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from breakeven.errors import CheckpointError, UsageError

__all__ = ["TargetTruth"]


class TargetTruth:
    """Loaded once, in float32 on the CPU; for a handful of samples."""

    def __init__(self, folder: Path) -> None:
        """
        Raises:
            CheckpointError: transformers cannot load the folder.
        """
        from transformers import AutoModelForCausalLM
        from transformers.utils.logging import disable_progress_bar

        self.folder = folder
        disable_progress_bar()
        try:
            self._model = AutoModelForCausalLM.from_pretrained(
                folder, dtype=torch.float32, attn_implementation="eager", local_files_only=True
            ).eval()
        except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
            raise CheckpointError(
                f"{folder}: transformers cannot load it ({str(error)[:200]}); the gates compare with it"
            ) from error

    @property
    def embed_weight(self) -> Tensor:
        """[V, H]"""
        weight: Tensor = self._model.get_input_embeddings().weight.detach()
        return weight

    @property
    def head_weight(self) -> Tensor:
        """[V, H]"""
        weight: Tensor = self._model.get_output_embeddings().weight.detach()
        return weight

    @torch.no_grad()
    def states(self, token_ids: Sequence[int]) -> tuple[list[Tensor], Tensor]:
        """The residual streams entering every layer [T, H] each, and the logits [T, V]."""
        found = self._model(torch.tensor([list(token_ids)]), output_hidden_states=True)
        # the last of the hidden states is after the final norm, which is no layer's input
        return [state[0] for state in found.hidden_states[:-1]], found.logits[0]

    def prompt_ids(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """The tokens that ask for the next assistant turn.

        Raises:
            UsageError: no chat template, or it refuses the messages.
        """
        from transformers import PreTrainedTokenizerFast

        tokenizer = PreTrainedTokenizerFast.from_pretrained(self.folder, local_files_only=True)
        try:
            found = tokenizer.apply_chat_template([dict(message) for message in messages], add_generation_prompt=True)
        except Exception as error:  # templates raise whatever they like
            raise UsageError(f"{self.folder}: transformers cannot render the messages ({str(error)[:200]})") from error
        ids = found["input_ids"] if isinstance(found, Mapping) else found
        return [int(token) for token in ids]
