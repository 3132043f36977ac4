"""Any architecture that transformers knows, in process: dense, experts, latent attention, quantized as served.

The streams are read by hooks on the decoder layers, and nothing is assumed that a look at the model can settle: on loading, a probe
checks that every layer is entered once by a stream of the model's width, and that the logits are the final norm's output times the
head, which is what the drafter's teacher is rebuilt from. No attention mask is passed: samples are padded at the end, where causal
attention never looks from a real row. Shapes: N rows, S samples and L rows each of a padded block, H hidden, V vocabulary.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from breakeven.checkpoints.folder import ModelFolder
from breakeven.drafter.capture.packing import blocks_of, sent
from breakeven.errors import CheckpointError, UsageError

__all__ = ["TransformersBackend"]

logger = logging.getLogger(__name__)

PROBE_TOKENS = 8
# Relative to the largest logit of the probe: rounding of the type, and no scale or cap of the logits, is below this.
PROBE_TOLERANCE = {torch.float32: 1e-4}
PROBE_TOLERANCE_HALF = 3e-2
# The head is applied to unit vectors in pieces of this many, where it has no plain weight.
HEAD_PIECE = 512
EXPERT_KEYS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")


class TransformersBackend:
    def __init__(self, model: Any, architecture: str) -> None:
        """`model` is a causal language model of transformers, in eval mode, where it is to run.

        Raises:
            CheckpointError: its layers cannot be found, or its logits are not `last @ head.T`; names the architecture.
        """
        self.architecture = architecture
        self._model = model
        config: Any = self._model.config.get_text_config()
        self.hidden_size, self.num_layers = int(config.hidden_size), int(config.num_hidden_layers)
        self.max_positions = int(getattr(config, "max_position_embeddings", None) or 1 << 30)
        self.is_routed = any((getattr(config, key, None) or 0) > 1 for key in EXPERT_KEYS)
        self._decoder, self._layers = self._find_layers()
        embedding = self._model.get_input_embeddings()
        head = self._model.get_output_embeddings()
        if not isinstance(getattr(embedding, "weight", None), Tensor) or head is None:
            raise CheckpointError(f"{architecture}: no plain embedding, or no head; a drafter shares both with its target")
        self.embed_weight = embedding.weight.detach()
        self.dtype, self.device = self.embed_weight.dtype, self.embed_weight.device
        self.head_weight = self._read_head(head)
        self.vocab_size = len(self.head_weight)
        self._probe()

    @classmethod
    def from_folder(
        cls, folder: ModelFolder, *, device: torch.device | str, dtype: torch.dtype, trust_remote_code: bool = False
    ) -> TransformersBackend:
        """Load a folder; `device` "auto" spreads it over all GPUs (needs accelerate).

        Raises:
            CheckpointError: an architecture or quantization that transformers cannot run here, or missing weights; names it.
            UsageError: a package is missing, or there is too little memory.
        """
        architectures = folder.config.get("architectures")
        architecture = str(architectures[0]) if isinstance(architectures, list) and architectures else "no architecture"
        with _quiet():
            model, report = _load(folder.path, architecture, device, dtype, trust_remote_code)
        lost = {kind: sorted(report.get(kind) or ()) for kind in ("missing_keys", "mismatched_keys")}
        for kind, names in lost.items():
            if names:
                more = f" and {len(names) - 3} more" if len(names) > 3 else ""
                raise CheckpointError(
                    f"{folder.path}: {architecture} has {kind.replace('_', ' ')} {', '.join(map(str, names[:3]))}{more}; "
                    "transformers would fill them with random numbers: the checkpoint is incomplete or of another layout"
                )
        return cls(model, architecture)

    @torch.no_grad()
    def states(self, token_ids: Tensor, starts: Sequence[int], layers: Sequence[int]) -> tuple[Tensor, Tensor]:
        auxiliary = last = None
        for block in blocks_of(starts):
            rows, places = sent(block.rows, self.device), sent(block.places, self.device)
            padded = token_ids.new_zeros(block.num_samples * block.length).index_copy_(0, places, token_ids[rows])
            entering, final = self._run(padded.view(block.num_samples, block.length), layers)
            if auxiliary is None or last is None:
                auxiliary = final.new_empty(len(token_ids), len(layers) * self.hidden_size)
                last = final.new_empty(len(token_ids), self.hidden_size)
            streams = torch.cat([entering[layer].flatten(0, 1)[places] for layer in layers], dim=-1)
            auxiliary.index_copy_(0, rows, streams)
            last.index_copy_(0, rows, final.flatten(0, 1)[places])
        assert auxiliary is not None
        assert last is not None
        return auxiliary, last

    def _run(self, token_ids: Tensor, layers: Sequence[int]) -> tuple[dict[int, Tensor], Tensor]:
        """Streams [S, L, H] entering `layers`, and [S, L, H] after the final norm, of padded `token_ids` [S, L]."""
        with self._watched(layers) as entering:
            final = self._decoder(input_ids=token_ids, use_cache=False).last_hidden_state.to(self.device)
        for layer in layers:
            seen = entering.get(layer)
            if seen is None or seen.shape != (*token_ids.shape, self.hidden_size):
                found = "nothing" if seen is None else f"a tensor of shape {list(seen.shape)}"
                raise CheckpointError(
                    f"{self.architecture}: {found} enters layer {layer}; expected one residual stream of shape "
                    f"{[*token_ids.shape, self.hidden_size]}: states of this architecture cannot be captured"
                )
        return entering, final

    @contextlib.contextmanager
    def _watched(self, layers: Sequence[int]) -> Iterator[dict[int, Tensor]]:
        entering: dict[int, Tensor] = {}

        def watch(layer: int) -> Any:
            def hook(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
                stream = args[0] if args else kwargs.get("hidden_states")
                if layer in entering:
                    raise CheckpointError(
                        f"{self.architecture}: layer {layer} runs more than once in a pass; which is meant is unclear"
                    )
                if isinstance(stream, Tensor):
                    # a layer may add to its input in place
                    entering[layer] = stream.to(self.device, copy=True)

            return hook

        handles = [self._layers[layer].register_forward_pre_hook(watch(layer), with_kwargs=True) for layer in layers]
        try:
            yield entering
        finally:
            for handle in handles:
                handle.remove()

    def _find_layers(self) -> tuple[Any, nn.ModuleList]:
        """The module that runs the layers and the final norm, and its list of layers."""
        decoder: Any = self._model.get_decoder()
        # itself, or, where that is the whole model, what it holds; a vision tower beside it does not count
        owners = [decoder, *(module for module in decoder.modules() if module is not decoder)]
        found = [
            (owner, child)
            for owner in owners
            for child in owner.children()
            if isinstance(child, nn.ModuleList) and len(child) == self.num_layers
        ]
        own = [(owner, child) for owner, child in found if owner is decoder]
        if len(own or found) != 1:
            raise CheckpointError(
                f"{self.architecture}: {len(own or found)} lists of {self.num_layers} layers in its decoder; expected one: "
                "states of this architecture cannot be captured"
            )
        return (own or found)[0]

    @torch.no_grad()
    def _read_head(self, head: nn.Module) -> Tensor:
        weight = getattr(head, "weight", None)
        if getattr(head, "bias", None) is not None:
            raise CheckpointError(f"{self.architecture}: its head has a bias, which a drafter's head cannot express")
        if isinstance(weight, Tensor) and weight.is_floating_point() and weight.dtype.itemsize > 1:
            return weight.detach().to(self.device)
        # a quantized head, as the model itself applies it: its answers to unit vectors are its columns
        columns = [
            head(torch.eye(self.hidden_size, dtype=self.dtype, device=self.device)[first : first + HEAD_PIECE])
            for first in range(0, self.hidden_size, HEAD_PIECE)
        ]
        return torch.cat(columns).T.contiguous()

    @torch.no_grad()
    def _probe(self) -> None:
        """Hold the model's own logits against `last @ head.T`, with every layer watched."""
        length = min(PROBE_TOKENS, self.max_positions)
        token_ids = torch.arange(1, length + 1, device=self.device).remainder(len(self.embed_weight))[None]
        # the whole model first: that is where packed weights are unpacked, on its first pass
        theirs = self._model(input_ids=token_ids, use_cache=False).logits.to(self.device).float()
        _, final = self._run(token_ids, range(self.num_layers))
        mine = (final.to(self.head_weight.dtype) @ self.head_weight.T).float()
        tolerance = PROBE_TOLERANCE.get(self.dtype, PROBE_TOLERANCE_HALF) * float(theirs.abs().max())
        if mine.shape != theirs.shape or not float((mine - theirs).abs().max()) <= tolerance:
            found = f"up to {float((mine - theirs).abs().max()):.3g}" if mine.shape == theirs.shape else "shape"
            raise CheckpointError(
                f"{self.architecture}: its logits differ (by {found}) from its final norm's output times its head; are they "
                "scaled or capped? The drafter's teacher is rebuilt from that product, so this architecture cannot be captured"
            )


def _load(
    path: Path, architecture: str, device: torch.device | str, dtype: torch.dtype, trust_remote_code: bool
) -> tuple[Any, dict[str, Any]]:
    try:
        from transformers import AutoModelForCausalLM
    except ImportError as error:
        raise UsageError("capturing states of this target needs transformers: pip install 'breakeven[train]'") from error
    placed = {"device_map": "auto"} if device == "auto" else {}
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=dtype,
            trust_remote_code=trust_remote_code,
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
            **placed,
        )
        model, report = loaded
        model = model if placed else model.to(device)
    except ImportError as error:
        raise UsageError(f"{path}: {architecture} needs a package that is not installed: {_first_line(error)}") from error
    except torch.OutOfMemoryError as error:
        raise UsageError(
            f"{path}: {architecture} does not fit in the memory of {device}; take device auto to spread it over all GPUs"
        ) from error
    except Exception as error:  # a library we do not control, on a folder from anywhere
        advice = ""
        if "trust_remote_code" in str(error):
            advice = "; its code comes with the folder and runs only if you allow it (--trust-remote-code)"
        raise CheckpointError(
            f"{path}: transformers cannot load {architecture} ({type(error).__name__}: {_first_line(error)}){advice}"
        ) from error
    return model.eval(), _as_dict(report)


def _as_dict(report: Any) -> dict[str, Any]:
    return (
        dict(report)
        if isinstance(report, dict)
        else {name: getattr(report, name, None) for name in ("missing_keys", "mismatched_keys")}
    )


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0].strip()[:300] if lines else ""


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Libraries warn about their own future while loading; what matters to the user is checked afterwards."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
