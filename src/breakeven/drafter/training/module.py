"""The EAGLE-3 head with weights that learn, and its way to and from the weights that drafting uses.

Masters are float32 and separate (queries, keys, values, gate, up), as checkpoints name them and as a matrix optimiser wants them.
The target's embedding is used and never trained, so it is no part of the checkpoint.

Shapes: H hidden, I intermediate, V target vocabulary, W draft vocabulary, N query heads, K key/value heads, D head dimension.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from breakeven.drafter.model.eagle3 import Eagle3Config, Eagle3Weights

__all__ = ["Eagle3Module", "power_of_two_scales"]

INITIAL_STD = 0.02


class Eagle3Module(nn.Module):
    """`scales` multiply the three auxiliary states before fc; they are folded into fc.weight on the way out.

    The states' sizes differ by hundreds (an early layer's may be 3, a late one's at position 0 above 1000). Powers of two bring
    them near 1 without a rounding error, so that bfloat16 and one learning rate fit all three.
    """

    embed: Tensor
    target_ids: Tensor
    scales: Tensor

    def __init__(
        self, config: Eagle3Config, target_ids: Tensor, target_embed: Tensor, scales: Sequence[float] = (1.0, 1.0, 1.0)
    ) -> None:
        super().__init__()
        shape, hidden = config.shape, config.shape.hidden_size
        queries, kv = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim

        def matrix(rows: int, columns: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(rows, columns, device=target_embed.device))

        def norm(*size: int) -> nn.Parameter:
            return nn.Parameter(torch.ones(*size, device=target_embed.device))

        self.config = config
        self.fc = matrix(hidden, 3 * hidden)
        self.fc_norm = norm(3, hidden) if config.fc_norm else None
        self.embed_norm, self.hidden_norm, self.post_norm, self.norm = (norm(hidden) for _ in range(4))
        self.query, self.key, self.value = matrix(queries, 2 * hidden), matrix(kv, 2 * hidden), matrix(kv, 2 * hidden)
        self.out = matrix(hidden, queries)
        self.gate, self.up = matrix(shape.intermediate_size, hidden), matrix(shape.intermediate_size, hidden)
        self.down = matrix(hidden, shape.intermediate_size)
        self.head = matrix(config.draft_vocab_size, hidden)
        self.register_buffer("embed", target_embed, persistent=False)
        self.register_buffer("target_ids", target_ids.to(target_embed.device), persistent=False)
        assert not config.fc_norm or set(scales) == {1.0}, "fc_norm brings each state to size 1 by itself"
        self.register_buffer("scales", torch.tensor(scales, device=target_embed.device), persistent=False)

    @torch.no_grad()
    def initialise(self, target_head: Tensor, seed: int) -> None:
        """Start where little has to be unlearnt: fc passes the last auxiliary state through, the head is the target's rows.

        target_head: [W, H], the rows of the draft vocabulary. What the layer adds to the residual stream starts at a small random
        value. The draws are made on the CPU, so the same seed starts the same training on every device.
        """
        generator = torch.Generator().manual_seed(seed)
        hidden = self.config.shape.hidden_size
        deeper = {id(self.out), id(self.down)}
        for weight in (self.fc, self.query, self.key, self.value, self.out, self.gate, self.up, self.down):
            std = INITIAL_STD / math.sqrt(2.0) if id(weight) in deeper else INITIAL_STD
            weight.copy_(torch.randn(weight.shape, generator=generator) * std)
        self.fc.zero_()
        self.fc[:, 2 * hidden :] = torch.eye(hidden)
        self.head.copy_(target_head)

    @torch.no_grad()
    def start_from(self, weights: Eagle3Weights) -> None:
        """Go on from a trained head (a second phase on other data). Its own embedding, if it has one, stays with it, frozen."""
        hidden, device = self.config.shape.hidden_size, self.fc.device
        self.fc.copy_(weights.fc.to(device).float() / self.scales.repeat_interleave(hidden))
        sizes = [len(self.query), len(self.key), len(self.value)]
        for own, given in zip((self.query, self.key, self.value), weights.qkv.split(sizes), strict=True):
            own.copy_(given)
        for own, given in zip((self.gate, self.up), weights.gate_up.chunk(2), strict=True):
            own.copy_(given)
        for name in ("embed_norm", "hidden_norm", "post_norm", "norm", "out", "down", "head"):
            getattr(self, name).copy_(getattr(weights, name))
        if self.fc_norm is not None:
            assert weights.fc_norm is not None
            self.fc_norm.copy_(weights.fc_norm)
        if weights.embed is not None:
            self.embed = weights.embed.to(self.embed.dtype).to(device)

    def weights(self) -> Eagle3Weights:
        """The head as drafting sees it, in float32; gradients flow through, so the plain objective can train it."""
        folded = self.fc * self.scales.repeat_interleave(self.config.shape.hidden_size)
        return Eagle3Weights(
            fc=folded,
            embed_norm=self.embed_norm,
            hidden_norm=self.hidden_norm,
            qkv=torch.cat([self.query, self.key, self.value]),
            out=self.out,
            post_norm=self.post_norm,
            gate_up=torch.cat([self.gate, self.up]),
            down=self.down,
            norm=self.norm,
            head=self.head,
            embed=None,
            target_ids=self.target_ids,
            fc_norm=self.fc_norm,
        )

    @torch.no_grad()
    def to_weights(self, dtype: torch.dtype = torch.float32) -> Eagle3Weights:
        """A copy for drafting in `dtype`, on the device of the module."""
        weights = self.weights()
        fields = {name: getattr(weights, name) for name in Eagle3Weights.__slots__}
        return Eagle3Weights(
            **{
                name: tensor.to(dtype, copy=True) if tensor is not None and tensor.is_floating_point() else tensor
                for name, tensor in fields.items()
            }
        )

    @torch.no_grad()
    def checkpoint_tensors(self, prefix: str = "midlayer") -> dict[str, Tensor]:
        """The tensors of an EAGLE-3 folder, float32, on the CPU: no embedding, `d2t` as int64 offsets, `t2d` as a mask."""
        named = {"fc.weight": self.weights().fc, **self._named(prefix)}
        if self.fc_norm is not None:
            named |= {f"fc_norm.{index}.weight": row for index, row in enumerate(self.fc_norm)}
        tensors = {name: tensor.detach().float().cpu().clone() for name, tensor in named.items()}
        target_ids = self.target_ids.cpu()
        known = torch.zeros(self.config.shape.vocab_size, dtype=torch.bool)
        known[target_ids] = True
        return tensors | {"d2t": target_ids - torch.arange(len(target_ids)), "t2d": known}

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor], prefix: str = "midlayer") -> None:
        """Take the weights of what `checkpoint_tensors` gave, of a head of the same shape and draft vocabulary."""
        hidden = self.config.shape.hidden_size
        self.fc.copy_(tensors["fc.weight"].to(self.fc.device) / self.scales.repeat_interleave(hidden))
        for name, own in self._named(prefix).items():
            own.copy_(tensors[name])
        if self.fc_norm is not None:
            self.fc_norm.copy_(torch.stack([tensors[f"fc_norm.{index}.weight"] for index in range(3)]))

    def _named(self, prefix: str) -> dict[str, Tensor]:
        """The weights that a checkpoint holds as they are."""
        return {
            f"{prefix}.input_layernorm.weight": self.embed_norm,
            f"{prefix}.hidden_norm.weight": self.hidden_norm,
            f"{prefix}.self_attn.q_proj.weight": self.query,
            f"{prefix}.self_attn.k_proj.weight": self.key,
            f"{prefix}.self_attn.v_proj.weight": self.value,
            f"{prefix}.self_attn.o_proj.weight": self.out,
            f"{prefix}.post_attention_layernorm.weight": self.post_norm,
            f"{prefix}.mlp.gate_proj.weight": self.gate,
            f"{prefix}.mlp.up_proj.weight": self.up,
            f"{prefix}.mlp.down_proj.weight": self.down,
            "norm.weight": self.norm,
            "lm_head.weight": self.head,
        }


def power_of_two_scales(auxiliary: Tensor, rows: Tensor) -> tuple[float, float, float]:
    """Powers of two that bring each third of `auxiliary` [N, 3H] near a root mean square of 1, judged on `rows` [N] bool.

    The median over rows: the first position of a sequence is an outlier of hundreds in many models.
    """
    sizes = auxiliary[rows].float().unflatten(-1, (3, -1)).pow(2).mean(-1).sqrt().median(dim=0).values.tolist()
    low, middle, high = (2.0 ** -round(math.log2(size)) if size > 0 else 1.0 for size in sizes)
    return low, middle, high
