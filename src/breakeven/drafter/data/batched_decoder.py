"""A Llama target that decodes a large fixed batch: the device's side of `generation.py`.

Every slot holds one sequence. One step feeds each slot its newest token and chooses the next one, with everything it needs in
tensors of fixed shape: no step waits for the host, and on CUDA a step is one replayed graph. Finished slots idle until they are
given another prompt. Nothing but speed differs between devices: the plain functions used on a CPU are the oracles of the kernels.

Shapes: S slots, P positions a slot holds, R rows, L tokens of the longest prompt of a group, H hidden, N query heads,
K key/value heads, G = N / K, D head dimension, V vocabulary, M most new tokens.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the name everybody reads it by

from breakeven.drafter.data.slot_layers import before_attention, prefill, step_attention, visible
from breakeven.drafter.data.token_choice import choose_tokens
from breakeven.drafter.model.layer_functions import after_attention, rms_norm, rotary_tables
from breakeven.drafter.model.llama import LlamaConfig, LlamaWeights
from breakeven.errors import CheckpointError

__all__ = ["BatchedDecoder", "Request"]

logger = logging.getLogger(__name__)

# The plain attention reads every slot up to one length, rounded up to this; a graph is captured for each such length.
LENGTH_STEP = 128
# Prompts of one group are padded to a multiple of this, so that few shapes occur.
PROMPT_STEP = 32
GRAPH_WARM_UP_STEPS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One prompt, on the host. `uniforms` [limit] holds a number in [0, 1) for each token that may be drawn, None for greedy."""

    prompt: Tensor  # [tokens] int64
    limit: int
    temperature: float
    uniforms: Tensor | None


class BatchedDecoder:
    """`admit` prompts to slots, `run` steps, ask who is `finished`, and take their `answers`."""

    def __init__(
        self,
        config: LlamaConfig,
        weights: LlamaWeights,
        *,
        num_slots: int,
        num_positions: int,
        max_new_tokens: int,
        top_p: float,
        stop_ids: Sequence[int],
        compiled: bool,
    ) -> None:
        """`weights` decide device and dtype. `compiled` fuses the element-wise work, which takes seconds to prepare (CUDA only)."""
        self.config, self.weights = config, weights
        self.num_slots, self.num_positions = num_slots, num_positions
        self._top_p = top_p
        self._device, dtype = weights.embed.device, weights.embed.dtype
        self._cuda = self._device.type == "cuda"
        cache_shape = (num_slots, config.num_kv_heads, num_positions, config.head_dim)
        # one tensor for each layer's keys and one for its values: a compiled function may not write to two views of one tensor
        self._keys = [torch.zeros(cache_shape, dtype=dtype, device=self._device) for _ in range(config.num_layers)]
        self._values = [torch.zeros(cache_shape, dtype=dtype, device=self._device) for _ in range(config.num_layers)]
        self._cos, self._sin = rotary_tables(config, torch.arange(num_positions, device=self._device), dtype)  # [P, 1, D]

        def per_slot(dtype: torch.dtype, *more: int) -> Tensor:
            return torch.zeros((num_slots, *more), dtype=dtype, device=self._device)

        self._token, self._position = per_slot(torch.int64), per_slot(torch.int64)  # the newest token and where it will stand
        self._count, self._limit, self._alive = per_slot(torch.int64), per_slot(torch.int64), per_slot(torch.bool)
        self._broken = per_slot(torch.bool)  # its logits were NaN or infinite
        self._temperature, self._uniforms = per_slot(torch.float32), per_slot(torch.float32, max_new_tokens)
        self._emitted = per_slot(torch.int64, max_new_tokens)
        self._slots = torch.arange(num_slots, device=self._device)[:, None]
        self._kv_heads = torch.arange(config.num_kv_heads, device=self._device)[None]
        self._stop_ids = torch.tensor(sorted(set(stop_ids)), dtype=torch.int64, device=self._device)
        # the longest sequence, known without asking the device: a bound, since finished slots do not grow
        self._longest = 1

        self._before: Callable[..., Tensor] = before_attention
        self._after: Callable[..., Tensor] = after_attention
        self._attend: Callable[..., Tensor] | None = None
        self._choose: Callable[..., Tensor] = choose_tokens
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        if self._cuda:
            if self._device.index is not None:
                torch.cuda.set_device(self._device)  # kernels of our own start on the current one
            self._use_kernels()
            if compiled:
                self._compile()
            self._capture_graphs()

    # --- what the host calls

    @torch.no_grad()
    def admit(self, free_slots: Sequence[int], requests: Sequence[Request]) -> None:
        """Run the prompts of `requests` through the target in one padded pass, each into its slot, and choose first tokens."""
        longest = max(len(request.prompt) for request in requests)
        self._longest = max(self._longest, longest)
        length = min(-(-longest // PROMPT_STEP) * PROMPT_STEP, self.num_positions)
        padded = torch.zeros(len(requests), length, dtype=torch.int64)
        drawn = torch.zeros(len(requests), self._uniforms.shape[1])
        for row, request in enumerate(requests):
            padded[row, : len(request.prompt)] = request.prompt
            if request.uniforms is not None:
                drawn[row, : len(request.uniforms)] = request.uniforms
        slots, uniforms = self._upload(list(free_slots)), drawn.to(self._device)
        lengths = self._upload([len(request.prompt) for request in requests])
        limits = self._upload([request.limit for request in requests])
        temperatures = self._upload([request.temperature for request in requests], torch.float32)
        rows = torch.arange(len(requests), device=self._device)
        tables = self._cos[:length], self._sin[:length]  # [L, 1, D]
        caches = zip(self._keys, self._values, strict=True)
        last = prefill(self.config, self.weights, padded.to(self._device), slots, caches, tables)[rows, lengths - 1]
        tokens, finite = self._next(self._logits(last), temperatures, uniforms[:, 0].contiguous())
        self._broken[slots] = ~finite
        self._token[slots], self._position[slots] = tokens, lengths
        self._count[slots], self._limit[slots] = 1, limits
        self._temperature[slots], self._uniforms[slots] = temperatures, uniforms
        self._emitted[slots, 0] = tokens
        self._alive[slots] = ~self._stops(tokens) & (limits > 1)

    @torch.no_grad()
    def run(self, num_steps: int) -> None:
        """Queue `num_steps` steps of all slots; returns without waiting for the device."""
        for step in range(num_steps):
            length = self._read_length(self._longest + step + 1)
            if length in self._graphs:
                self._graphs[length].replay()
            else:
                self._step(length)
        self._longest = min(self._longest + num_steps, self.num_positions)

    def finished(self, slots: Sequence[int]) -> list[int]:
        """Those of `slots` that are done; waits for the device.

        Raises:
            CheckpointError: the target's logits are no numbers, so that no token of its answers is its own.
        """
        alive, broken = torch.stack((self._alive, self._broken)).tolist()
        if any(broken):
            raise CheckpointError(
                f"the target's logits hold NaN or infinity in {self.weights.embed.dtype}, so nothing that it answers is its own: "
                "take a wider type (float32), or fetch the model again"
            )
        if self._attend is None:
            self._longest = max([1, *self._position[self._alive].tolist()])
        return [slot for slot in slots if not alive[slot]]

    def answers(self, slots: Sequence[int]) -> list[list[int]]:
        """The tokens chosen so far in each of `slots`, the stop token included where one came."""
        chosen = self._upload(list(slots))
        counts, emitted = self._count[chosen].tolist(), self._emitted[chosen].tolist()
        return [tokens[:count] for tokens, count in zip(emitted, counts, strict=True)]

    # --- what the device does

    def _step(self, length: int) -> None:
        """One decode step of every slot; `length` positions are read by the plain attention."""
        cos, sin = self._cos[self._position], self._sin[self._position]  # [S, 1, D]
        eps, heads = self.config.rms_norm_eps, (self.config.num_heads, self.config.num_kv_heads)
        cells = (self._slots, self._kv_heads, self._position[:, None])  # of the caches, that the new keys and values go to
        # a finished slot reads one position instead of all of its answer
        lengths = torch.where(self._alive, self._position + 1, 1)
        hidden = self.weights.embed[self._token]
        mask = None if self._attend is not None else visible(lengths, length, hidden.dtype)
        for layer, keys, values in zip(self.weights.layers, self._keys, self._values, strict=True):
            queries = self._before(hidden, layer.input_norm, layer.qkv, eps, heads, cos, sin, keys, values, *cells)
            if self._attend is not None:
                mixed = self._attend(queries, keys, values, lengths)
            else:
                mixed = step_attention(queries, keys[:, :, :length], values[:, :, :length], mask)
            hidden = self._after(hidden, mixed, layer.out, layer.post_norm, layer.gate_up, layer.down, eps)
        uniforms = self._uniforms.gather(1, self._count.clamp(max=self._uniforms.shape[1] - 1)[:, None])[:, 0]
        tokens, finite = self._next(self._logits(hidden), self._temperature, uniforms)
        self._broken |= self._alive & ~finite
        # a finished slot writes what already stands there, so that shapes stay fixed
        places = (self._count - (~self._alive).long()).clamp(min=0)[:, None]
        self._token.copy_(torch.where(self._alive, tokens, self._token))
        self._emitted.scatter_(1, places, torch.where(self._alive[:, None], tokens[:, None], self._emitted.gather(1, places)))
        self._count += self._alive
        self._position += self._alive
        self._alive &= ~self._stops(tokens) & (self._count < self._limit)

    def _next(self, logits: Tensor, temperatures: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens [R], and whether the logits they were chosen from are numbers."""
        finite = logits.amax(-1).isfinite()
        # any token will do for a row that nobody will use; one outside the vocabulary would stop the device
        return torch.where(finite, self._choose(logits, temperatures, self._top_p, uniforms), 0), finite

    def _logits(self, hidden: Tensor) -> Tensor:
        return F.linear(rms_norm(hidden, self.weights.norm, self.config.rms_norm_eps), self.weights.head)

    def _stops(self, tokens: Tensor) -> Tensor:
        # not isin, which may sort, and so wait for the host, which a graph cannot
        return (tokens[:, None] == self._stop_ids).any(-1)

    def _upload(self, numbers: Sequence[float], dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.tensor(numbers, dtype=dtype).to(self._device)

    def _read_length(self, bound: int) -> int:
        """How far the plain attention reads for sequences of at most `bound` tokens; the kernel reads each to its own end."""
        if self._attend is not None:
            return self.num_positions
        return min(-(-bound // LENGTH_STEP) * LENGTH_STEP, self.num_positions)

    # --- CUDA only; each falls back to what the CPU does and says so

    def _use_kernels(self) -> None:
        """Take the Triton kernels if they compile here and agree with the plain functions."""
        try:
            from breakeven.drafter.data import triton_kernels

            triton_kernels.check(self.config, self.weights.embed.dtype, self._device)
        except Exception as error:  # any failure of a compiler we do not control
            logger.warning("no Triton kernels for generation (%s: %s); the plain functions decode more slowly", *_named(error))
            return
        self._attend, self._choose = triton_kernels.decode_attention, triton_kernels.choose_tokens

    def _compile(self) -> None:
        """Compile the parts around attention once for all layers, and try them."""
        self._before = torch.compile(before_attention, dynamic=False, fullgraph=True)
        self._after = torch.compile(after_attention, dynamic=False, fullgraph=True)
        try:
            with torch.no_grad():
                self._step(self.num_positions)
        except Exception as error:
            logger.warning("torch.compile failed (%s: %s); generation goes on without it", *_named(error))
            self._before, self._after = before_attention, after_attention

    @torch.no_grad()
    def _capture_graphs(self) -> None:
        """One graph for each length that is read. No slot is alive yet, so steps run here change nothing that is kept."""
        lengths = sorted({self._read_length(bound) for bound in range(1, self.num_positions + 1)}, reverse=True)
        try:
            pool = torch.cuda.graph_pool_handle()
            for length in lengths:
                stream = torch.cuda.Stream(self._device)
                stream.wait_stream(torch.cuda.current_stream(self._device))
                with torch.cuda.stream(stream):
                    for _ in range(GRAPH_WARM_UP_STEPS):
                        self._step(length)
                torch.cuda.current_stream(self._device).wait_stream(stream)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=pool):
                    self._step(length)
                self._graphs[length] = graph
        except Exception as error:
            logger.warning("CUDA graphs failed (%s: %s); generation goes on step by step, more slowly", *_named(error))
            self._graphs.clear()
        torch.cuda.synchronize(self._device)


def _named(error: Exception) -> tuple[str, str]:
    lines = str(error).splitlines()
    return type(error).__name__, lines[0] if lines else ""
