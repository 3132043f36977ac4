"""Random heads of many shapes, and random states of a target, packed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from breakeven.drafter.capture.states import PackedStates
from breakeven.drafter.model.eagle3 import Eagle3Config
from breakeven.drafter.model.llama import LlamaConfig
from breakeven.drafter.training.module import Eagle3Module

VOCAB, DRAFT_VOCAB = 97, 32


def head_config(**overrides: Any) -> Eagle3Config:
    shape: dict[str, Any] = {
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_layers": 1,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 8,
        "vocab_size": VOCAB,
        "max_positions": 128,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_scaling": {},
        "tie_word_embeddings": False,
        "eos_token_ids": frozenset({2}),
    }
    options = {key: overrides.pop(key) for key in ("fc_norm", "norm_output") if key in overrides}
    return Eagle3Config(
        shape=LlamaConfig(**(shape | overrides)),
        draft_vocab_size=DRAFT_VOCAB,
        auxiliary_layers=(1, 2, 3),
        auxiliary_source="test",
        **options,
    )


@pytest.fixture
def make_module() -> Callable[..., tuple[Eagle3Module, torch.Tensor]]:
    """A head with random weights (norms too) and the target's rows of its draft vocabulary [W, H]."""

    def make(
        *, seed: int = 0, scales: tuple[float, float, float] = (0.5, 1.0, 0.25), **overrides: Any
    ) -> tuple[Eagle3Module, torch.Tensor]:
        config = head_config(**overrides)
        generator = torch.Generator().manual_seed(seed)
        embed = torch.randn(VOCAB, config.shape.hidden_size, generator=generator)
        target_ids = torch.randperm(VOCAB, generator=generator)[:DRAFT_VOCAB].sort().values
        module = Eagle3Module(config, target_ids, embed, (1.0, 1.0, 1.0) if config.fc_norm else scales)
        with torch.no_grad():
            for weight in module.parameters():
                weight.copy_(torch.randn(weight.shape, generator=generator) * 0.3 + (1.0 if weight.dim() == 1 else 0.0))
        return module, torch.randn(DRAFT_VOCAB, config.shape.hidden_size, generator=generator)

    return make


@pytest.fixture
def make_packed() -> Callable[..., PackedStates]:
    def make(lengths: Sequence[int], *, hidden_size: int = 24, mask: Sequence[bool] | None = None, seed: int = 3) -> PackedStates:
        generator = torch.Generator().manual_seed(seed)
        total = sum(lengths)
        return PackedStates(
            token_ids=torch.randint(0, VOCAB, (total,), generator=generator),
            positions=torch.cat([torch.arange(length) for length in lengths]),
            samples=torch.cat([torch.full((length,), index, dtype=torch.int32) for index, length in enumerate(lengths)]),
            starts=torch.tensor([0, *lengths]).cumsum(0),
            loss_mask=torch.rand(total, generator=generator) < 0.8 if mask is None else torch.tensor(mask),
            auxiliary=torch.randn(total, 3 * hidden_size, generator=generator),
            last=torch.randn(total, hidden_size, generator=generator),
        )

    return make
