"""The target's states at every token of some samples: what a drafter is trained on, computed when it is asked for."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from breakeven.checkpoints.folder import ModelFolder, open_folder
from breakeven.drafter.capture.backend import Backend
from breakeven.drafter.capture.checks import FiniteWatch, check_same_states, check_samples
from breakeven.drafter.capture.llama_backend import LlamaBackend
from breakeven.drafter.capture.packing import groups_within, pack_tokens
from breakeven.drafter.capture.states import PackedStates
from breakeven.drafter.capture.transformers_backend import TransformersBackend
from breakeven.drafter.data.samples import Sample
from breakeven.drafter.devices import chosen_device
from breakeven.errors import CheckpointError, DataError, UsageError

__all__ = ["Capture", "open_target"]

logger = logging.getLogger(__name__)

# Tokens of one pass through the target: beyond this, products get no faster and activations only larger.
TOKENS_AT_ONCE = {"cuda": 65_536, "cpu": 4096}

Runner = Literal["auto", "own", "transformers"]


class Capture:
    """`capture` samples; also the parts of the target that a drafter shares or starts from.

    Shapes: V vocabulary, H hidden, W rows asked for.
    """

    def __init__(
        self,
        backend: Backend,
        layers: Sequence[int],
        *,
        audit_every: int = 0,
        defer_checks: bool = False,
        tokens_at_once: int | None = None,
    ) -> None:
        """
        layers: three layer inputs, low to high: the residual stream entering layer i, 0 for the embedding.
        audit_every: every so many captures, one sample is run again alone and compared; 0 never.
        defer_checks: on a GPU, numbers that are not finite are told at the next capture, or by `settle`, so that a training loop
            never waits for this; such a loop must `settle` at its end.

        Raises:
            UsageError: layers that the target does not have, or not three that rise.
        """
        chosen = tuple(layers)
        if len(chosen) != 3 or list(chosen) != sorted(set(chosen)) or not 0 <= chosen[0] <= chosen[2] < backend.num_layers:
            raise UsageError(
                f"auxiliary layers {list(layers)}; expected three different layer inputs of 0 to "
                f"{backend.num_layers - 1}, low to high"
            )
        self._backend = backend
        self.layers: tuple[int, int, int] = (chosen[0], chosen[1], chosen[2])
        self.hidden_size, self.vocab_size, self.num_layers = backend.hidden_size, backend.vocab_size, backend.num_layers
        self.dtype, self.device = backend.dtype, backend.device
        self._audit_every, self._defer_checks = audit_every, defer_checks
        self._num_captures = 0
        self._tokens_at_once = tokens_at_once or TOKENS_AT_ONCE.get(self.device.type, TOKENS_AT_ONCE["cpu"])
        self._watch = FiniteWatch(self.layers)

    @classmethod
    def from_folder(
        cls,
        model_folder: Path,
        layers: Sequence[int],
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        runner: Runner = "auto",
        trust_remote_code: bool = False,
        audit_every: int = 0,
        defer_checks: bool = False,
    ) -> Capture:
        """Load a target; arguments as for `open_target` and the constructor.

        Raises:
            CheckpointError, UsageError: as `open_target` and the constructor do.
        """
        target = open_target(model_folder, device=device, dtype=dtype, runner=runner, trust_remote_code=trust_remote_code)
        return cls(target, layers, audit_every=audit_every, defer_checks=defer_checks)

    @property
    def architecture(self) -> str:
        return self._backend.architecture

    @property
    def embed_weight(self) -> Tensor:
        """[V, H], the target's own: not a copy."""
        return self._backend.embed_weight

    def head_weight(self, rows: Tensor | None = None) -> Tensor:
        """[V, H], or a copy of `rows` [W] of it: `last @ head_weight().T` are the target's logits."""
        return self._backend.head_weight if rows is None else self._backend.head_weight[rows.to(self.device)]

    @torch.no_grad()
    def capture(self, samples: Sequence[Sample]) -> PackedStates:
        """The states of `samples`, in their order, on the target's device and in its dtype.

        Raises:
            DataError: a sample does not fit the target, states are not finite, or an audit failed.
        """
        assert samples
        check_samples(samples, self.vocab_size, self._backend.max_positions)
        packed = pack_tokens(samples, self.device)
        starts = packed.starts.tolist()
        parts = []
        for first, end in groups_within(packed.starts.diff().tolist(), self._tokens_at_once):
            token_ids = packed.token_ids[starts[first] : starts[end]]
            parts.append(self._backend.states(token_ids, [start - starts[first] for start in starts[first : end + 1]], self.layers))
        auxiliary, last = parts[0] if len(parts) == 1 else (torch.cat(streams) for streams in zip(*parts, strict=True))
        if not len(auxiliary) == len(last) == starts[-1]:
            raise DataError(
                f"the target gave {len(last)} rows of states for {starts[-1]} tokens of {len(samples)} samples; they were "
                "truncated or served from a cache, and would train the wrong tokens"
            )
        states = PackedStates(
            token_ids=packed.token_ids,
            positions=packed.positions,
            samples=packed.samples,
            starts=packed.starts,
            loss_mask=packed.loss_mask,
            auxiliary=auxiliary,
            last=last,
        )
        self._watch.watch(states, samples)
        if not self._defer_checks:
            self._watch.settle()
        if self._audit_every and self._num_captures % self._audit_every == 0:
            # another sample each time, so that in the long run all places in a batch are looked at
            self.audit(states, samples, [self._num_captures // self._audit_every % len(samples)])
        self._num_captures += 1
        return states

    def compile_for(self, num_rows: int) -> tuple[str, ...]:
        """Get ready for many captures of at most `num_rows` tokens, a multiple of 128; notes say what could not be had."""
        compile_for = getattr(self._backend, "compile_for", None)
        if compile_for is None or self.device.type != "cuda":
            return ()
        found: tuple[str, ...] = compile_for(num_rows)
        return found

    def settle(self) -> None:
        """Judge the last capture if its checks were deferred. Raises DataError as `capture` does."""
        self._watch.settle()

    @torch.no_grad()
    def audit(self, states: PackedStates, samples: Sequence[Sample], indices: Sequence[int]) -> None:
        """Run the samples at `indices` again, each alone, and hold their rows of `states` against that.

        Raises:
            DataError: rows are missing, shifted or differ by more than rounding.
        """
        starts = states.starts.tolist()
        for index in indices:
            sample = samples[index]
            token_ids = torch.tensor(sample.token_ids, device=self.device)
            alone = self._backend.states(token_ids, [0, len(token_ids)], self.layers)
            rows = slice(starts[index], starts[index + 1])
            check_same_states(sample, (states.auxiliary[rows], states.last[rows]), alone, is_routed=self._backend.is_routed)


def open_target(
    model_folder: Path,
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    runner: Runner = "auto",
    trust_remote_code: bool = False,
) -> Backend:
    """A target in memory.

    device: None takes CUDA where there is one; "auto" spreads the target over all GPUs (transformers and accelerate).
    dtype: None is bfloat16 on a GPU and float32 on a CPU.
    runner: "own" is our forward for plain Llama folders, "transformers" runs any architecture, "auto" takes the first that can.

    Raises:
        CheckpointError: the folder is damaged, or of an architecture or quantization that neither can run; names it.
        UsageError: a package is missing, or there is too little memory.
    """
    folder = open_folder(model_folder)
    if device == "auto" and runner == "own":
        raise UsageError("our own forward runs on one device; name it, or let transformers spread the target over all GPUs")
    # "auto" is a way of placing a model, not a device of torch
    place = device if device == "auto" else chosen_device(device)
    on_gpu = isinstance(place, str) or place.type == "cuda"
    kind = dtype if dtype is not None else torch.bfloat16 if on_gpu else torch.float32
    if isinstance(place, torch.device) and (runner == "own" or (runner == "auto" and _is_plain_llama(folder))):
        try:
            return LlamaBackend.from_folder(folder, device=place, dtype=kind)
        except torch.OutOfMemoryError as error:
            raise UsageError(f"{model_folder}: does not fit in the memory of {place}; take device auto") from error
        except CheckpointError as error:
            if runner == "own":
                raise
            logger.info("%s; taking transformers", error)
    return TransformersBackend.from_folder(folder, device=place, dtype=kind, trust_remote_code=trust_remote_code)


def _is_plain_llama(folder: ModelFolder) -> bool:
    return folder.config.get("architectures") == ["LlamaForCausalLM"] and not folder.config.get("quantization_config")
