"""The next token of every row of a batch: greedy where the temperature is 0, else drawn from the nucleus by inversion.

The uniform number of a draw is an input, so that a row's choices depend on its request and not on who shares the batch. This is the
plain version, and the oracle of the one in `triton_kernels.py`. Shapes: R rows, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["choose_tokens"]


def choose_tokens(logits: Tensor, temperatures: Tensor, top_p: float, uniforms: Tensor) -> Tensor:
    """Token ids [R] int64 from `logits` [R, V], `temperatures` [R] (0 is greedy) and `uniforms` [R] in [0, 1).

    Where logits are NaN or infinite the token is none that anybody chose, but one of the vocabulary: whoever decodes looks.

    The nucleus is the smallest set of most likely tokens that holds `top_p` of the mass; tokens as likely as its last one belong to
    it, because which of them a sort puts first is an accident.
    """
    greedy = logits.argmax(-1)
    sampled = temperatures > 0
    probabilities = (logits.float() / torch.where(sampled, temperatures, 1.0)[:, None]).softmax(-1)
    if top_p < 1.0:
        ordered = probabilities.sort(dim=-1, descending=True).values
        # a token stays if the mass before it is still below top_p, so the first always stays
        num_kept = (ordered.cumsum(-1) - ordered < top_p).sum(-1, keepdim=True).clamp(min=1)
        probabilities = probabilities.masked_fill(probabilities < ordered.gather(-1, num_kept - 1), 0.0)
    cumulative = probabilities.cumsum(-1)
    total = cumulative[:, -1]
    # strictly below the total even after rounding, so the token found has mass of its own
    points = torch.minimum(uniforms * total, torch.nextafter(total, torch.zeros_like(total)))
    drawn = torch.searchsorted(cumulative, points[:, None], right=True)[:, 0].clamp(max=logits.shape[1] - 1)
    return torch.where(sampled, drawn, greedy)
