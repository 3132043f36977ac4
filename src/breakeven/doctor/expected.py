"""The tensors that an EAGLE-3 head consists of: which are needed, which are known, and what shape the configuration gives each.

Roles, as in `Drafter.by_role`: `layer.` is the first decoder layer whatever the trainer calls it. Shapes: H hidden, T the target's
hidden, A auxiliary states, I intermediate, Q query heads x D, K key/value heads x D, W draft vocabulary, V vocabulary.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from breakeven.doctor.drafter import Drafter

__all__ = ["NORM_ROLES", "expected_shapes", "is_known", "misnamed", "needed_roles", "stem"]

NORM_ROLES = ("layer.input_layernorm", "layer.hidden_norm", "layer.post_attention_layernorm", "norm")
_ATTENTION = tuple(f"layer.self_attn.{name}_proj" for name in "qkvo")
_LATENT = tuple(
    f"layer.self_attn.{name}"
    for name in ("q_a_proj", "q_a_layernorm", "q_b_proj", "kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj", "o_proj")
)
_MLP = tuple(f"layer.mlp.{name}_proj" for name in ("gate", "up", "down"))
# Fused on disk: both engines load them under these names too.
_FUSED = {"layer.self_attn.qkv_proj": _ATTENTION[:3], "layer.mlp.gate_up_proj": _MLP[:2]}
_OTHERS = re.compile(
    r"d2t|t2d|mask_hidden|embed_tokens\.weight|lm_head\.weight|layer\.self_attn\.rotary_emb\.inv_freq"
    r"|fc_norm\.\d{1,2}\.weight|aux_norm_(?:low|mid|high)\.weight|input_norm\.weight"
    r"|layer\.self_attn\.(?:[qk]_norm\.weight|attn\.[kv]_scale|[kv]_scale|[qkvo]_proj\.bias|qkv_proj\.bias)"
)
_QUANTIZED = re.compile(
    r"\.(?:weight|weight_packed|weight_scale|weight_scale_inv|weight_scale_2|weight_shape|weight_zero_point|weight_g_idx"
    r"|input_scale|input_global_scale|weight_global_scale|qweight|qzeros|scales|g_idx|[kv]_scale|output_scale)$"
)
CLOSE = 0.75
MAX_UNKNOWN = 200


def stem(role: str) -> str:
    """The module that a tensor belongs to: its name without `.weight`, or the names that quantized formats give its parts."""
    return _QUANTIZED.sub("", role)


def needed_roles(draft: Drafter) -> tuple[str, ...]:
    """Modules without which the head computes nothing of use; lm_head and embeddings have rules of their own."""
    attention = _ATTENTION
    if draft.is_latent:
        full = draft.setting("q_lora_rank").value is None and "layer.self_attn.q_a_proj.weight" not in draft.by_role
        attention = (*(("layer.self_attn.q_proj", *_LATENT[3:]) if full else _LATENT),)
    present = {stem(role) for role in draft.by_role}
    needed = (*attention, *_MLP, *NORM_ROLES, "fc")
    for whole, parts in _FUSED.items():
        if whole in present:
            needed = tuple(one for one in needed if one not in parts)
    return needed


def is_known(role: str, draft: Drafter) -> bool:
    """Whether engines have a place for a tensor of this role in some release."""
    if role.startswith("layers."):
        number, _, rest = role.removeprefix("layers.").partition(".")
        return number.isdigit() and is_known(f"layer.{rest}", draft)
    return stem(role) in {*needed_roles(draft), *_FUSED, *_ATTENTION, "lm_head"} or _OTHERS.fullmatch(role) is not None


def expected_shapes(draft: Drafter) -> Mapping[str, tuple[int, ...]]:
    """Shapes that follow from config.json alone, for the tensors whose sizes it gives."""
    hidden, inter, vocab = draft.hidden, draft.number("intermediate_size"), draft.vocab
    heads, width = draft.number("num_attention_heads"), draft.number("head_dim")
    draft_vocab = draft.number("draft_vocab_size")
    shapes: dict[str, tuple[int | None, ...]] = {
        "layer.mlp.gate_proj.weight": (inter, hidden),
        "layer.mlp.up_proj.weight": (inter, hidden),
        "layer.mlp.down_proj.weight": (hidden, inter),
        "lm_head.weight": (draft_vocab, hidden),
        "embed_tokens.weight": (vocab, hidden),
        "d2t": (draft_vocab,),
        "t2d": (vocab,),
        **{f"{role}.weight": (hidden,) for role in NORM_ROLES},
    }
    if width is None and heads and hidden and not hidden % heads:
        width = hidden // heads
    if heads and width and hidden and not draft.is_latent:
        kv_heads = draft.number("num_key_value_heads") or heads
        shapes |= {
            "layer.self_attn.q_proj.weight": (heads * width, 2 * hidden),
            "layer.self_attn.k_proj.weight": (kv_heads * width, 2 * hidden),
            "layer.self_attn.v_proj.weight": (kv_heads * width, 2 * hidden),
            "layer.self_attn.o_proj.weight": (hidden, heads * width),
        }
    return {role: tuple(one for one in shape if one) for role, shape in shapes.items() if all(shape)}


def misnamed(draft: Drafter) -> list[tuple[str, str]]:
    """(name on disk, name that engines look for): unknown names that are nearly one that is missing."""
    present = {stem(role) for role in draft.by_role}
    missing = [role for role in (*needed_roles(draft), "lm_head", "d2t") if role not in present]
    unknown = [name for name in draft.tensors if not is_known(draft.role(name), draft)]
    pairs: list[tuple[str, str]] = []
    for name in unknown[:MAX_UNKNOWN]:
        role = draft.role(name)
        near = difflib.get_close_matches(stem(role), missing, n=1, cutoff=CLOSE)
        same_end = [
            one for one in missing if stem(role).endswith(f".{one}") or stem(role).endswith(f".{one.removeprefix('layer.')}")
        ]
        wanted = near or same_end[:1]
        if wanted:
            missing.remove(wanted[0])
            ending = role.removeprefix(stem(role))
            pairs.append((name, wanted[0].replace("layer.", "midlayer.") + ending))
    return pairs
