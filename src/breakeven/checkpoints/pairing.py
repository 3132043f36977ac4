"""Whether an EAGLE-3 head fits a target, from configurations and tensor shapes alone.

Only what is wrong under every engine is refused here; what differs between engines is theirs and the doctor's to judge.
Shapes: H hidden, W draft vocabulary, L auxiliary layers (three unless the configuration says otherwise).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from breakeven.checkpoints.folder import ModelFolder
from breakeven.errors import CheckpointError

__all__ = ["check_eagle3_pair"]

NUM_AUXILIARY = 3


def check_eagle3_pair(target: ModelFolder, drafter: ModelFolder) -> None:
    """Hold a drafter's architecture, widths and vocabularies against its target's.

    Raises:
        CheckpointError: not an EAGLE-3 head, or one made for another target.
    """
    where = f"{drafter.path}/config.json"
    architectures = drafter.config.get("architectures")
    names = [str(name) for name in architectures] if isinstance(architectures, list) else []
    if not any("eagle3" in name.lower() for name in names) and drafter.config.get("speculators_model_type") != "eagle3":
        raise CheckpointError(
            f"{where}: architectures is {names!a}; method eagle3 expects an EAGLE-3 head such as LlamaForCausalLMEagle3"
        )
    config = _model_config(target.config)
    head = _model_config(drafter.config)
    hidden, head_hidden = config.get("hidden_size"), head.get("hidden_size")
    target_width = drafter.config.get("target_hidden_size") or head_hidden
    if hidden is not None and target_width is not None and target_width != hidden:
        raise CheckpointError(f"{where}: made for a target of width {target_width!a}, but {target.path} has {hidden!a}")
    vocab, head_vocab = config.get("vocab_size"), head.get("vocab_size")
    if vocab is not None and head_vocab is not None and head_vocab != vocab:
        raise CheckpointError(f"{where}: made for a vocabulary of {head_vocab!a}, but {target.path} has {vocab!a}: another target")
    _check_fc(target, drafter, hidden, head_hidden)
    _check_head(drafter, head_hidden, head_vocab)


def _check_fc(target: ModelFolder, drafter: ModelFolder, hidden: object, head_hidden: object) -> None:
    fc = drafter.tensors.get("fc.weight")
    if fc is None:
        raise CheckpointError(f"{drafter.path}: no tensor fc.weight, which joins the target's states; expected an EAGLE-3 head")
    given = drafter.config.get("num_aux_hidden_states")
    count = given if isinstance(given, int) and given > 0 else NUM_AUXILIARY
    if isinstance(hidden, int) and isinstance(head_hidden, int) and fc.shape != (head_hidden, count * hidden):
        raise CheckpointError(
            f"{drafter.path}: fc.weight is {list(fc.shape)}; {count} states of {target.path} take [{head_hidden}, {count * hidden}]"
        )


def _check_head(drafter: ModelFolder, head_hidden: object, head_vocab: object) -> None:
    draft_vocab = drafter.config.get("draft_vocab_size") or head_vocab
    head = drafter.tensors.get("lm_head.weight")
    if head is not None and isinstance(draft_vocab, int) and head.shape != (draft_vocab, head_hidden):
        raise CheckpointError(
            f"{drafter.path}: lm_head.weight is {list(head.shape)}, but config.json asks for [{draft_vocab}, {head_hidden}]"
        )
    d2t = drafter.tensors.get("d2t")
    if d2t is not None and isinstance(draft_vocab, int) and d2t.shape != (draft_vocab,):
        raise CheckpointError(f"{drafter.path}: d2t is {list(d2t.shape)}, but config.json asks for [{draft_vocab}]")


def _model_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part: multimodal targets nest it, and so do heads in the speculators format."""
    for key in ("text_config", "transformer_layer_config"):
        nested = config.get(key)
        if isinstance(nested, dict):
            return {**nested, **{name: config[name] for name in ("draft_vocab_size",) if name in config}}
    return config
