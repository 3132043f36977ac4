"""Heads of any trainer read into the one model, or refused with the name of what it cannot express.

A layout is recognised by what only its trainer writes; each is one row of `LAYOUTS`. Layer tensors come in two spellings that the
model reads itself (`midlayer.*`, `layers.0.*`); what differs is the configuration: where it stands, and what is meant by what it
leaves out. Positions may begin at 0 or 1 (speculators): rotary attention sees differences only, so the function is the same.

Pickles are never loaded: original EAGLE folders hold pytorch_model.bin, which the folder reader refuses with what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from breakeven.checkpoints.folder import ModelFolder, open_folder
from breakeven.drafter.model.eagle3 import IDS_KEY, Eagle3Config, Eagle3Weights
from breakeven.drafter.model.llama import read_tensors
from breakeven.errors import CheckpointError

__all__ = ["ImportedHead", "Sizes", "read_head", "target_sizes"]

ARCHITECTURE = "LlamaForCausalLMEagle3"
PICKLE = "pytorch_model.bin"
# Embeddings of the target that this project's targets and their multimodal wrappers spell in one of these ways.
EMBEDDING_NAMES = (
    "model.embed_tokens.weight",
    "language_model.model.embed_tokens.weight",
    "model.language_model.embed_tokens.weight",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    hidden_size: int
    vocab_size: int
    num_layers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedHead:
    """`notes` say what was taken for granted or left out on the way in."""

    config: Eagle3Config
    weights: Eagle3Weights
    source_format: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """`rewritten` gives the configuration in the spelling the model reads, and notes."""

    name: str
    matches: Callable[[ModelFolder], bool]
    rewritten: Callable[[ModelFolder, Sizes], tuple[dict[str, Any], list[str]]]


def read_head(path: Path, target: ModelFolder, dtype: torch.dtype = torch.float32) -> ImportedHead:
    """Read the head in `path`, made for `target`, weights in `dtype`.

    Raises:
        CheckpointError: not an EAGLE-3 head, made for another target, damaged, a pickle, or a function the model does not have.
    """
    if (path / PICKLE).is_file() and not any(path.glob("*.safetensors")):
        raise CheckpointError(
            f"{path}: holds {PICKLE}, as original EAGLE checkpoints do: a pickle, which can run code when it is loaded, so it is "
            "not "
            'read here. If you trust it, convert it once: python -c "import torch; from safetensors.torch import save_file; '
            f"save_file({{k: v.contiguous() for k, v in torch.load('{PICKLE}', weights_only=True).items()}}, 'model.safetensors')\""
        )
    folder = open_folder(path)
    sizes = target_sizes(target)
    _refuse_other_functions(folder)
    layout = next(layout for layout in LAYOUTS if layout.matches(folder))
    config_json, notes = layout.rewritten(folder, sizes)
    rewritten = ModelFolder(path=folder.path, config=config_json, tensors=folder.tensors)
    config = Eagle3Config.from_folder(rewritten, sizes)
    weights = Eagle3Weights.from_folder(rewritten, config, dtype)
    _check_mask(rewritten, config, weights)
    weights, note = _without_copied_embedding(weights, target, dtype)
    if config.norm_output and "norm_output" in config_json:
        notes.append(
            "norm_output is read as vLLM and SGLang do (the normed state is fed back). SpecForge writes it for heads that "
            "were trained with the state before the norm: compare breakeven eval with norm_output true and false"
        )
    return ImportedHead(
        config=config, weights=weights, source_format=layout.name, notes=(*notes, *([note] if note is not None else ()))
    )


def target_sizes(target: ModelFolder) -> Sizes:
    """What a head must know of its target; multimodal targets keep it one level down.

    Raises:
        CheckpointError: the configuration lacks a size.
    """
    text = target.config.get("text_config")
    config = text if isinstance(text, dict) else target.config
    values = [config.get(key) for key in ("hidden_size", "vocab_size", "num_hidden_layers")]
    if not all(type(value) is int and value > 0 for value in values):
        raise CheckpointError(
            f"{target.path}/config.json: hidden_size, vocab_size and num_hidden_layers are {values}; expected positive whole "
            "numbers"
        )
    hidden, vocab, layers = values
    assert isinstance(hidden, int)
    assert isinstance(vocab, int)
    assert isinstance(layers, int)
    return Sizes(hidden_size=hidden, vocab_size=vocab, num_layers=layers)


def _refuse_other_functions(folder: ModelFolder) -> None:
    where = f"{folder.path}: "
    if "fc.weight" not in folder.tensors:
        raise CheckpointError(where + "no tensor fc.weight, which joins the target's states; expected an EAGLE-3 head")
    if any("kv_a_proj_with_mqa" in name for name in folder.tensors):
        raise CheckpointError(
            where + "a head with latent attention (MLA); the model here has Llama attention only, serve it as it is"
        )
    deeper = sorted(name for name in folder.tensors if name.startswith(("layers.1.", "midlayer.1.")))
    if deeper:
        raise CheckpointError(where + f"more than one decoder layer ({deeper[0]}); EAGLE-3 heads here have one")
    for name, what in (("mask_hidden", "parallel drafting (P-EAGLE)"),):
        if name in folder.tensors:
            raise CheckpointError(where + f"{what}, tensor {name}: a function that the model here does not have")
    if any(name.endswith(".bias") for name in folder.tensors):
        raise CheckpointError(where + "biases in its projections, which SGLang does not load and the model here does not compute")


def _is_speculators(folder: ModelFolder) -> bool:
    return "speculators_model_type" in folder.config or "speculators_config" in folder.config


def _from_speculators(folder: ModelFolder, sizes: Sizes) -> tuple[dict[str, Any], list[str]]:
    config = folder.config
    where = f"{folder.path}/config.json"
    if config.get("speculators_model_type", "eagle3") != "eagle3":
        raise CheckpointError(f"{where}: speculators_model_type is {config['speculators_model_type']!a}; expected 'eagle3'")
    layer = config.get("transformer_layer_config")
    if not isinstance(layer, dict):
        raise CheckpointError(f"{where}: transformer_layer_config is {layer!a}; expected the decoder layer's configuration")
    notes: list[str] = []
    ids = config.get(IDS_KEY)
    if isinstance(ids, list) and len(ids) == 4 and ids[-1] == sizes.num_layers:
        notes.append(f"layer id {ids[-1]} names the last hidden state, which training needed and drafting does not: left out")
        ids = ids[:3]
    own = {key: config[key] for key in ("norm_before_fc", "fc_norm", "norm_output", "draft_vocab_size") if key in config}
    own["norm_before_residual"] = config.get("norm_before_residual", True)
    if "norm_before_residual" not in config:
        notes.append("norm_before_residual is absent, which in this layout means true")
    rewritten = {
        **layer,
        **own,
        "num_hidden_layers": layer.get("num_hidden_layers", 1),
        "architectures": [ARCHITECTURE],
        IDS_KEY: ids,
    }
    if config.get("target_hidden_size") not in (None, sizes.hidden_size):
        raise CheckpointError(
            f"{where}: target_hidden_size is {config['target_hidden_size']!a}, but the target's is {sizes.hidden_size}: another "
            "target"
        )
    return rewritten, notes


def _has_layer_outputs(folder: ModelFolder) -> bool:
    eagle = folder.config.get("eagle_config")
    return isinstance(eagle, dict) and eagle.get(IDS_KEY) is not None and folder.config.get(IDS_KEY) is None


def _in_layers(folder: ModelFolder) -> bool:
    return any(name.startswith("layers.0.") for name in folder.tensors)


def _from_layer_outputs(folder: ModelFolder, _sizes: Sizes) -> tuple[dict[str, Any], list[str]]:
    # Model-Optimizer's exports were called LlamaForCausalLM for some time
    return {**folder.config, "architectures": [ARCHITECTURE]}, []


def _from_original(folder: ModelFolder, _sizes: Sizes) -> tuple[dict[str, Any], list[str]]:
    note = (
        "the configuration names no auxiliary layers: taken are the inputs of layers 2, n // 2 and n - 3, as EAGLE and SpecForge's "
        "trainer do and both engines by default"
    )
    return {**folder.config, "architectures": [ARCHITECTURE]}, [note]


def _from_portable(folder: ModelFolder, _sizes: Sizes) -> tuple[dict[str, Any], list[str]]:
    eagle = folder.config.get("eagle_config")
    inputs, outputs = folder.config.get(IDS_KEY), eagle.get(IDS_KEY) if isinstance(eagle, dict) else None
    if isinstance(inputs, list) and isinstance(outputs, list) and [*map(_one_lower, inputs)] != outputs:
        raise CheckpointError(
            f"{folder.path}/config.json: {IDS_KEY} is {inputs} at top level, which vLLM reads as layer inputs, and {outputs} in "
            "eagle_config, which SGLang reads as layer outputs: they name different states. Expected "
            f"{[*map(_one_lower, inputs)]} there"
        )
    return dict(folder.config), []


def _one_lower(layer: object) -> object:
    return layer - 1 if isinstance(layer, int) else layer


LAYOUTS = (
    _Layout(name="speculators", matches=_is_speculators, rewritten=_from_speculators),
    _Layout(
        name="Model-Optimizer or TorchSpec",
        matches=lambda folder: _has_layer_outputs(folder) and _in_layers(folder),
        rewritten=_from_layer_outputs,
    ),
    _Layout(name="SpecForge or TorchSpec", matches=_has_layer_outputs, rewritten=_from_layer_outputs),
    _Layout(name="breakeven or vLLM", matches=lambda folder: folder.config.get(IDS_KEY) is not None, rewritten=_from_portable),
    _Layout(name="EAGLE or SpecForge", matches=lambda _: True, rewritten=_from_original),
)


def _check_mask(folder: ModelFolder, config: Eagle3Config, weights: Eagle3Weights) -> None:
    if "t2d" not in folder.tensors:
        return
    mask = read_tensors(folder, {"t2d": (config.shape.vocab_size,)}, None)["t2d"].bool()
    expected = torch.zeros(config.shape.vocab_size, dtype=torch.bool).index_fill_(0, weights.target_ids, True)
    if not torch.equal(mask, expected):
        wrong = int((mask != expected).sum())
        raise CheckpointError(
            f"{folder.path}: t2d and d2t disagree on {wrong} of {len(mask)} tokens: t2d marks {int(mask.sum())}, d2t names "
            f"{len(weights.target_ids)}. One of them is of another vocabulary; export the head again"
        )


def _without_copied_embedding(weights: Eagle3Weights, target: ModelFolder, dtype: torch.dtype) -> tuple[Eagle3Weights, str | None]:
    """Trainers copy the target's embedding into the head; both engines use the target's where the head has none."""
    if weights.embed is None:
        return weights, None
    name = next((name for name in EMBEDDING_NAMES if name in target.tensors), None)
    if name is None:
        return weights, "the head has an embedding, and the target's was not found to compare it with: it is kept"
    theirs = read_tensors(target, {name: tuple(weights.embed.shape)}, dtype)[name]
    # the copy may have been rounded to the head's own type
    if not torch.equal(theirs, weights.embed) and not torch.equal(theirs.bfloat16(), weights.embed.bfloat16()):
        share = float((theirs.bfloat16() != weights.embed.bfloat16()).any(-1).float().mean())
        return weights, f"the head has an embedding of its own: {share:.0%} of its rows differ from the target's"
    fields: Mapping[str, Any] = {name: getattr(weights, name) for name in Eagle3Weights.__slots__}
    return Eagle3Weights(**{**fields, "embed": None}), "its embedding is a copy of the target's: left out"
