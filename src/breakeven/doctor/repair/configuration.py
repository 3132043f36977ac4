"""Repairs of config.json, one function a fault. Each changes what its rule found, and nothing where the value is not certain."""

from __future__ import annotations

import math

from breakeven.doctor.drafter import LAYER_IDS, language_config
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.layer_ids import ids_trained_on
from breakeven.doctor.quantization import FUSED, quantization
from breakeven.doctor.repair.copying import Copying
from breakeven.doctor.rope import read_rope

__all__ = [
    "announce_biases",
    "announce_norms",
    "count_layers",
    "count_states",
    "except_fused_names",
    "raise_position_limit",
    "settle_rope",
    "size_draft_vocabulary",
    "take_targets_theta",
    "unannounce_quantization",
    "untie_head",
    "use_states",
    "write_layer_ids",
]


def write_layer_ids(copying: Copying, evidence: Evidence) -> None:
    """Both keys, each in its engine's convention."""
    draft = evidence.draft
    assert draft is not None
    trained = ids_trained_on(draft, evidence.target)
    if len(trained) != 1:
        return
    copying.set(LAYER_IDS, list(trained[0].ids))
    copying.set(LAYER_IDS, [one - 1 for one in trained[0].ids], inside="eagle_config")


def use_states(copying: Copying, evidence: Evidence) -> None:
    assert evidence.draft is not None
    place, _, key = evidence.draft.flag("use_aux_hidden_state").key.rpartition(".")
    copying.set(key, True, inside=place)


def count_states(copying: Copying, evidence: Evidence) -> None:
    assert evidence.draft is not None
    if evidence.draft.num_auxiliary is not None:
        copying.set("num_aux_hidden_states", evidence.draft.num_auxiliary)


def count_layers(copying: Copying, evidence: Evidence) -> None:
    draft = evidence.draft
    assert draft is not None
    copying.set("num_hidden_layers", draft.num_layers_held, inside=copying.home_of("num_hidden_layers", draft))


def announce_biases(copying: Copying, evidence: Evidence) -> None:
    assert evidence.draft is not None
    copying.set("attention_bias", True, inside=copying.home_of("attention_bias", evidence.draft))


def announce_norms(copying: Copying, evidence: Evidence) -> None:
    """Flags for norms whose tensors are there."""
    draft = evidence.draft
    assert draft is not None
    if any(role.startswith(("fc_norm.", "aux_norm_")) for role in draft.by_role):
        copying.set("fc_norm", True)
    if "input_norm.weight" in draft.by_role:
        nested = copying.config.get("eagle_config")
        inside = "eagle_config" if isinstance(nested, dict) and "norm_before_fc" in nested else ""
        copying.set("norm_before_fc", True, inside=inside)


def untie_head(copying: Copying, evidence: Evidence) -> None:
    draft = evidence.draft
    assert draft is not None
    if "lm_head.weight" in draft.by_role:
        copying.set("tie_word_embeddings", False, inside=copying.home_of("tie_word_embeddings", draft))


def size_draft_vocabulary(copying: Copying, evidence: Evidence) -> None:
    draft = evidence.draft
    assert draft is not None
    rows = next((draft.by_role[name].shape[0] for name in ("lm_head.weight", "d2t") if name in draft.by_role), draft.vocab)
    if rows is not None:
        copying.set("draft_vocab_size", rows)


def raise_position_limit(copying: Copying, evidence: Evidence) -> None:
    """To the context that is served, where the RoPE settings agree with the target's."""
    draft, target = evidence.draft, evidence.target
    assert draft is not None
    if target is None:
        return
    own, theirs = read_rope(draft.layer_config), read_rope(language_config(target))
    if own.kind != theirs.kind or not math.isclose(own.effective_theta, theirs.effective_theta) or own.max_positions is None:
        return
    wanted = [theirs.max_positions or 0]
    if evidence.launch is not None and evidence.launch.context:
        wanted.append(int(evidence.launch.context.value))
    if max(wanted) > own.max_positions:
        copying.set("max_position_embeddings", max(wanted), inside=copying.home_of("max_position_embeddings", draft))


def take_targets_theta(copying: Copying, evidence: Evidence) -> None:
    """A base that is in no key, from the target: what trainers start from."""
    draft, target = evidence.draft, evidence.target
    assert draft is not None
    own = read_rope(draft.layer_config)
    theirs = read_rope(language_config(target)).theta if target is not None else None
    if own.theta is not None or theirs is None:
        return
    inside = "transformer_layer_config" if draft.is_speculators else ""
    why = "the target's, which is right unless the drafter was trained with another"
    copying.set("rope_theta", theirs, inside=inside, why=why)
    table = draft.layer_config.get("rope_parameters")
    if isinstance(table, dict) and not inside:
        copying.set("rope_theta", theirs, inside="rope_parameters", why=why)


def settle_rope(copying: Copying, evidence: Evidence) -> None:
    """Of two bases in one file, the one that the target has; nothing where neither is, or where more than the base differs."""
    draft, target = evidence.draft, evidence.target
    assert draft is not None
    rope = read_rope(draft.layer_config)
    theirs = read_rope(language_config(target)).theta if target is not None else None
    table = draft.layer_config.get("rope_parameters")
    if theirs is None or draft.is_speculators or not isinstance(table, dict) or len(rope.contradictions) != 1:
        return
    outer, inner = draft.layer_config.get("rope_theta"), table.get("rope_theta")
    if theirs not in (outer, inner) or outer == inner:
        return
    why = "of the two that the file states, the target's"
    copying.set("rope_theta", theirs, why=why)
    copying.set("rope_theta", theirs, inside="rope_parameters", why=why)


def unannounce_quantization(copying: Copying, evidence: Evidence) -> None:
    assert evidence.draft is not None
    found = quantization(evidence.draft)
    if found is not None and not found.quantized:
        copying.unset("quantization_config")


def except_fused_names(copying: Copying, evidence: Evidence) -> None:
    """The fused names beside the parts that are excepted already."""
    draft = evidence.draft
    assert draft is not None
    found = quantization(draft)
    table = copying.config.get("quantization_config")
    if found is None or not isinstance(table, dict):
        return
    key = next((key for key in ("ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules") if key in table), None)
    names = [
        f"re:.*{fused.rpartition('.')[2]}" if key == "ignore" else fused.replace("layer.", "midlayer.")
        for fused, parts in FUSED.items()
        if any(part in found.plain for part in parts)
        and all(part in found.excepted for part in parts if part in found.plain)
        and not found.excepts(fused)
    ]
    if key is not None and names and isinstance(table[key], list):
        copying.set(key, [*table[key], *names], inside="quantization_config")
