"""What an EAGLE-3 drafter takes a round: one pass over the verified rows, then one pass for each further draft.

The first pass joins the target's states (3H to H) for all rows of the round and makes the first draft; every further draft is a
pass over one row a request. A pass is one decoder layer whose attention takes 2H, and a head over the draft vocabulary. Engines
captured it in CUDA graphs late or in part, so a pass carries the host's overhead, which small models feel most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from breakeven.checkpoints.headers import read_json
from breakeven.checkpoints.random_head import default_draft_vocab_size
from breakeven.costs.kernels.times import KernelTime
from breakeven.costs.prior.architecture import GroupedHeads, TargetShape
from breakeven.costs.prior.parts import SMALL_GROUPED, Kernels, Part, mlp, total
from breakeven.errors import CheckpointError, UsageError

__all__ = ["DrafterShape", "default_drafter", "described_drafter", "draft_round", "drafter_shape"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterShape:
    """An EAGLE-3 head in bfloat16; `joined` is how many of the target's states it reads."""

    name: str
    hidden: int
    target_hidden: int
    intermediate: int
    attention: GroupedHeads
    draft_vocab: int
    num_layers: int = 1
    joined: int = 3


def default_drafter(target: TargetShape) -> DrafterShape:
    """The shape that `breakeven head` writes: one layer as wide as the target's, with a pruned vocabulary."""
    heads = target.attention
    if not isinstance(heads, GroupedHeads):
        # public Llama-style heads of latent targets use full 128-wide heads
        heads = GroupedHeads(heads=heads.heads, kv_heads=heads.heads, head_dim=128)
    return DrafterShape(
        name="EAGLE-3 head of the usual shape",
        hidden=target.hidden,
        target_hidden=target.hidden,
        intermediate=target.dense_intermediate,
        attention=heads,
        draft_vocab=default_draft_vocab_size(target.vocab),
    )


def drafter_shape(folder: Path, target: TargetShape) -> DrafterShape:
    """Read `folder`/config.json.

    Raises:
        CheckpointError: sizes missing or impossible, or a head made for a target of another width.
    """
    config = read_json(folder / "config.json")
    nested = config.get("transformer_layer_config")
    text: Mapping[str, Any] = {**config, **nested} if isinstance(nested, dict) else config
    where = f"{folder}/config.json"

    def size(key: str, default: int | None = None) -> int:
        value = text.get(key, default)
        if type(value) is not int or not 0 < value < 1 << 24:
            raise CheckpointError(f"{where}: {key} is {value!a}; expected a positive whole number")
        return value

    hidden, heads = size("hidden_size"), size("num_attention_heads")
    target_hidden = size("target_hidden_size", hidden)
    if target_hidden != target.hidden:
        raise CheckpointError(f"{where}: made for a target of width {target_hidden}; {target.name} has {target.hidden}")
    if text.get("kv_lora_rank") is not None:
        # a latent draft layer reads about as much as a grouped one with few key/value heads; its kernels are not priced apart
        attention = GroupedHeads(heads=heads, kv_heads=1, head_dim=128)
    else:
        attention = GroupedHeads(
            heads=heads, kv_heads=size("num_key_value_heads", heads), head_dim=size("head_dim", max(hidden // heads, 1))
        )
    return DrafterShape(
        name=folder.name,
        hidden=hidden,
        target_hidden=target_hidden,
        intermediate=size("intermediate_size"),
        attention=attention,
        draft_vocab=size("draft_vocab_size", size("vocab_size", target.vocab)),
        num_layers=size("num_hidden_layers", 1),
    )


def described_drafter(text: str, target: TargetShape) -> DrafterShape:
    """A head of the usual shape but for what `text` says, such as "layers=2,vocab=163840".

    Raises:
        UsageError: a word that is not known, or not a positive whole number.
    """
    usual = default_drafter(target)
    sizes = {
        "layers": usual.num_layers,
        "hidden": usual.hidden,
        "intermediate": usual.intermediate,
        "heads": usual.attention.heads,
        "kv_heads": usual.attention.kv_heads,
        "head_dim": usual.attention.head_dim,
        "vocab": usual.draft_vocab,
    }
    for part in text.split(","):
        word, _, number = (piece.strip() for piece in part.partition("="))
        if word not in sizes or not (number.isascii() and number.isdigit()) or not 0 < int(number) < 1 << 24:
            raise UsageError(
                f"--drafter {text[:60]!a}: expected a head's folder, or sizes such as layers=2,vocab=163840; known: "
                f"{', '.join(sizes)}"
            )
        sizes[word] = int(number)
    return DrafterShape(
        name=f"EAGLE-3 head with {text}",
        hidden=sizes["hidden"],
        target_hidden=target.hidden,
        intermediate=sizes["intermediate"],
        attention=GroupedHeads(heads=sizes["heads"], kv_heads=sizes["kv_heads"], head_dim=sizes["head_dim"]),
        draft_vocab=sizes["vocab"],
        num_layers=sizes["layers"],
    )


def draft_round(
    kernels: Kernels, shape: DrafterShape, *, batch: int, num_drafted: int, context: int, parallel: int
) -> tuple[Part, ...]:
    """All passes of one round. Raises MissingKernel."""
    first = _pass(kernels, shape, batch, num_drafted + 1, context, parallel, joins=True)
    parts = [Part(group=part.group, name=f"first draft: {part.name}", time=part.time) for part in first]
    if num_drafted > 1:
        more = _pass(kernels, shape, batch, 1, context, parallel, joins=False)
        count = num_drafted - 1
        parts += [Part(group=part.group, name=f"{count} more: {part.name}", time=part.time.times(count)) for part in more]
    return tuple(parts)


def _pass(
    kernels: Kernels, shape: DrafterShape, batch: int, queries: int, context: int, parallel: int, *, joins: bool
) -> tuple[Part, ...]:
    tokens, hidden, heads = batch * queries, shape.hidden, shape.attention
    local, local_kv = max(heads.heads // parallel, 1), max(heads.kv_heads // parallel, 1)
    attention = total(
        (
            kernels.product(tokens, (local + 2 * local_kv) * heads.head_dim, 2 * hidden),
            kernels.attention.at(
                batch=batch, queries=queries, context=context, heads=local, kv_heads=local_kv, head_dim=heads.head_dim
            ),
            kernels.product(tokens, hidden, local * heads.head_dim),
        )
    ).times(shape.num_layers)
    dense = mlp(kernels, tokens, hidden, shape.intermediate, parallel, "bfloat16").times(shape.num_layers)
    parts = [Part(group="attention", name="its attention", time=attention), Part(group="dense", name="its MLP", time=dense)]
    if joins:
        joined = kernels.product(tokens, hidden, shape.joined * shape.target_hidden)
        parts.append(Part(group="dense", name="joining the target's states", time=joined))
    # only one row a request needs draft logits
    head = kernels.product(batch, -(-shape.draft_vocab // parallel), hidden)
    parts.append(Part(group="head", name="its head", time=head))
    reduces = 2 * shape.num_layers + 1
    collective: KernelTime = kernels.reduce.at(tokens * hidden, parallel).times(reduces)
    parts.append(Part(group="collectives", name=f"{reduces} all-reduces", time=collective))
    launches = (SMALL_GROUPED + 4) * shape.num_layers
    parts.append(Part(group="small kernels", name=f"{launches} small launches", time=kernels.small(tokens, hidden, launches)))
    return tuple(parts)
