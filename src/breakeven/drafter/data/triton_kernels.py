"""Two kernels for decoding a large batch on a GPU, each the equal of a plain function that says what it computes.

`decode_attention` reads each sequence to its own end, so one CUDA graph serves all lengths; it runs at the speed of reading the
cache. `choose_tokens` handles a row in one program, which keeps its logits near: sorting a vocabulary for top_p would take longer
than the model. `check` holds both against the plain functions on the device itself before they are used.

Shapes: S slots, P positions, N query heads, K key/value heads, G = N / K, D head dimension, R rows, V vocabulary.
"""

# Triton comes with torch for CUDA only, and its kernels are a language of their own.
# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-def, untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from breakeven.drafter.data import token_choice
from breakeven.drafter.model.llama import LlamaConfig

__all__ = ["check", "choose_tokens", "decode_attention"]

POSITIONS_PER_BLOCK = 64
TOKENS_PER_BLOCK = 4096
# The nucleus is found by halving the range of log-probabilities that can matter; what is left of it then is rounding.
HALVINGS = 22
# Tensor cores multiply tiles of at least this many rows.
MIN_TILE = 16


def decode_attention(queries: Tensor, keys: Tensor, values: Tensor, lengths: Tensor) -> Tensor:
    """Attend one query a slot, `queries` [S, N, D], to the first `lengths` [S] positions of `keys`, `values` [S, K, P, D].

    Returns [S, N * D].
    """
    num_slots, num_heads, head_dim = queries.shape
    num_kv_heads, num_positions = keys.shape[1:3]
    group = num_heads // num_kv_heads
    mixed = torch.empty(num_slots, num_heads * head_dim, dtype=queries.dtype, device=queries.device)
    _attention[(num_slots, num_kv_heads)](
        queries.contiguous(),
        keys,
        values,
        lengths,
        mixed,
        head_dim**-0.5,
        num_positions,
        GROUP=group,
        TILE=max(MIN_TILE, triton.next_power_of_2(group)),
        HEAD_DIM=head_dim,
        BLOCK=POSITIONS_PER_BLOCK,
    )
    return mixed


@triton.jit
def _attention(
    queries,
    keys,
    values,
    lengths,
    mixed,
    scale,
    num_positions,
    GROUP: tl.constexpr,
    TILE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # one program: all query heads of one key/value head of one slot, so that keys are read once
    slot = tl.program_id(0).to(tl.int64)
    head = slot * tl.num_programs(1) + tl.program_id(1)
    length = tl.load(lengths + slot)
    rows, columns = tl.arange(0, TILE), tl.arange(0, HEAD_DIM)
    places = (head * GROUP + rows[:, None]) * HEAD_DIM + columns[None, :]
    query = tl.load(queries + places, mask=rows[:, None] < GROUP, other=0.0)
    first = head * num_positions * HEAD_DIM
    largest = tl.full([TILE], -float("inf"), tl.float32)
    weight = tl.zeros([TILE], tl.float32)
    total = tl.zeros([TILE, HEAD_DIM], tl.float32)
    for start in range(0, length, BLOCK):
        positions = start + tl.arange(0, BLOCK)
        inside = positions < length
        cells = first + positions[:, None] * HEAD_DIM + columns[None, :]
        key = tl.load(keys + cells, mask=inside[:, None], other=0.0)
        scores = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
        scores = tl.where(inside[None, :], scores, -float("inf"))
        # streaming softmax: what was summed before is scaled to the new maximum
        larger = tl.maximum(largest, tl.max(scores, 1))
        shrink = tl.exp(largest - larger)
        shares = tl.exp(scores - larger[:, None])
        value = tl.load(values + cells, mask=inside[:, None], other=0.0)
        weight = weight * shrink + tl.sum(shares, 1)
        total = total * shrink[:, None] + tl.dot(shares.to(value.dtype), value, input_precision="ieee")
        largest = larger
    tl.store(mixed + places, (total / weight[:, None]).to(mixed.dtype.element_ty), mask=rows[:, None] < GROUP)


def choose_tokens(logits: Tensor, temperatures: Tensor, top_p: float, uniforms: Tensor) -> Tensor:
    """As `token_choice.choose_tokens`; at the edge of the nucleus, tokens within 1e-5 of its last log-probability belong to it."""
    rows, vocab = logits.shape
    chosen = torch.empty(rows, dtype=torch.int64, device=logits.device)
    block = min(TOKENS_PER_BLOCK, triton.next_power_of_2(vocab))
    _choice[(rows,)](
        logits, temperatures, uniforms, chosen, top_p, vocab, TOP_P_USED=top_p < 1.0, HALVINGS=HALVINGS, BLOCK=block, num_warps=8
    )
    return chosen


@triton.jit
def _choice(
    logits,
    temperatures,
    uniforms,
    chosen,
    top_p,
    vocab,
    TOP_P_USED: tl.constexpr,
    HALVINGS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    logits += row * vocab
    tokens = tl.arange(0, BLOCK)
    temperature = tl.load(temperatures + row)
    # pass 1: the largest logit and, of equal ones, the first
    best = tl.full([BLOCK], -float("inf"), tl.float32)
    best_token = tl.zeros([BLOCK], tl.int32)
    for start in range(0, vocab, BLOCK):
        block = tl.load(logits + start + tokens, mask=start + tokens < vocab, other=-float("inf")).to(tl.float32)
        better = block > best
        best = tl.where(better, block, best)
        best_token = tl.where(better, start + tokens, best_token)
    largest = tl.max(best, 0)
    token = tl.min(tl.where(best == largest, best_token, vocab), 0)
    if temperature > 0:
        # pass 2: the mass, relative to the largest logit
        sums = tl.zeros([BLOCK], tl.float32)
        for start in range(0, vocab, BLOCK):
            block = tl.load(logits + start + tokens, mask=start + tokens < vocab, other=-float("inf")).to(tl.float32)
            sums += tl.exp((block - largest) / temperature)
        mass = tl.sum(sums, 0)
        low = -float("inf")
        if TOP_P_USED:
            # The lowest kept log-probability, relative to the largest, by halving: mass(>= low) >= top_p always holds. Tokens below
            # the first `low` weigh less than 1 - top_p together, so none of them is needed.
            wanted = top_p * mass
            low = tl.log((1.0 - top_p) * mass / vocab)
            low = tl.minimum(low, 0.0)
            high = 0.0
            for _ in range(HALVINGS):
                middle = 0.5 * (low + high)
                sums = tl.zeros([BLOCK], tl.float32)
                for start in range(0, vocab, BLOCK):
                    block = tl.load(logits + start + tokens, mask=start + tokens < vocab, other=-float("inf")).to(tl.float32)
                    scaled = (block - largest) / temperature
                    sums += tl.where(scaled >= middle, tl.exp(scaled), 0.0)
                enough = tl.sum(sums, 0) >= wanted
                low = tl.where(enough, middle, low)
                high = tl.where(enough, high, middle)
            sums = tl.zeros([BLOCK], tl.float32)
            for start in range(0, vocab, BLOCK):
                block = tl.load(logits + start + tokens, mask=start + tokens < vocab, other=-float("inf")).to(tl.float32)
                scaled = (block - largest) / temperature
                sums += tl.where(scaled >= low, tl.exp(scaled), 0.0)
            mass = tl.sum(sums, 0)
        # last pass: the token at which the cumulative mass passes the drawn point; the last kept one if rounding eats the point
        point = tl.load(uniforms + row) * mass
        before = 0.0
        found = vocab
        last_kept = token
        for start in range(0, vocab, BLOCK):
            block = tl.load(logits + start + tokens, mask=start + tokens < vocab, other=-float("inf")).to(tl.float32)
            scaled = (block - largest) / temperature
            shares = tl.where(scaled >= low, tl.exp(scaled), 0.0)
            passed = (before + tl.cumsum(shares, 0) > point) & (shares > 0)
            found = tl.minimum(found, tl.min(tl.where(passed, start + tokens, vocab), 0))
            last_kept = tl.maximum(last_kept, tl.max(tl.where(shares > 0, start + tokens, 0), 0))
            before += tl.sum(shares, 0)
        token = tl.where(found < vocab, found, last_kept)
    tl.store(chosen + row, token.to(tl.int64))


@torch.no_grad()
def check(config: LlamaConfig, dtype: torch.dtype, device: torch.device) -> None:
    """Compile both kernels for this model's shapes and hold them against the plain functions.

    Raises:
        ValueError: a shape the kernels have no tiles for, or a result that differs.
    """
    head_dim = config.head_dim
    if head_dim < MIN_TILE or head_dim & (head_dim - 1):
        raise ValueError(f"head dimension {head_dim}; expected a power of two of at least {MIN_TILE}")
    generator = torch.Generator(device).manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=device).to(dtype)

    queries, positions = random(3, config.num_heads, head_dim), 2 * POSITIONS_PER_BLOCK + 8
    keys, values = random(3, config.num_kv_heads, positions, head_dim), random(3, config.num_kv_heads, positions, head_dim)
    lengths = torch.tensor([1, POSITIONS_PER_BLOCK + 3, positions], device=device)
    mixed = decode_attention(queries, keys, values, lengths).view(3, config.num_heads, head_dim)
    group = config.num_heads // config.num_kv_heads
    for slot, length in enumerate(lengths.tolist()):
        key, value = (cache[slot, :, :length].float().repeat_interleave(group, 0) for cache in (keys, values))
        scores = (queries[slot, :, None].float() @ key.transpose(1, 2)) * head_dim**-0.5
        expected = (scores.softmax(-1) @ value)[:, 0]
        tolerance = 1e-4 if dtype == torch.float32 else 3e-2
        if not torch.allclose(mixed[slot].float(), expected, atol=tolerance, rtol=tolerance):
            raise ValueError(
                f"the attention kernel differs by {(mixed[slot].float() - expected).abs().max():.3g} at length {length}"
            )

    logits = random(64, config.vocab_size) * 3
    temperatures = torch.tensor([0.0, 0.7, 1.0, 1.5], device=device).repeat(16)
    uniforms = torch.rand(64, generator=generator, device=device)
    for top_p in (1.0, 0.9):
        mine = choose_tokens(logits, temperatures, top_p, uniforms)
        plain = token_choice.choose_tokens(logits, temperatures, top_p, uniforms)
        # sums in another order move the edges between tokens, so a few draws may land on the neighbour
        if not torch.equal(mine[::4], plain[::4]) or (mine != plain).sum() > 3:
            raise ValueError(f"the kernel that chooses tokens differs in {int((mine != plain).sum())} of 64 rows at top_p {top_p}")
