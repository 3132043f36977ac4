"""What one forward of a target takes, part by part: t tokens of B requests over a context, on T GPUs.

Every part is a kernel time times the number of its launches. Shapes: H hidden, t tokens, T GPUs; products are [t, k] x [k, n].
What the tables do not have (norms, rotations, gathers, sampling) counts as launches of at least two microseconds that read and
write their rows once; how many there are a layer was counted in the engines' decoder layers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from breakeven.costs.kernels.attention import Attention, LatentAttention
from breakeven.costs.kernels.collectives import AllReduce
from breakeven.costs.kernels.dense import Gemm
from breakeven.costs.kernels.experts import Moe
from breakeven.costs.kernels.library import Library
from breakeven.costs.kernels.times import LAUNCH_S, WEIGHT_BYTES, KernelTime
from breakeven.costs.prior.architecture import Experts, GroupedHeads, LatentHeads, TargetShape
from breakeven.costs.prior.routing import touched_skewed, touched_uniform

__all__ = ["Group", "Kernels", "Part", "Routing", "forward", "total"]

Group = Literal["attention", "experts", "dense", "collectives", "head", "small kernels", "host"]
Routing = Literal["uniform", "skewed", "between"]

# launches a layer beside products, attention and collectives: norms with residual, rotation and cache write, activation
SMALL_GROUPED = 4
# ... of latent attention: norms of both latents, rotation, absorption's two batched products, cache write besides
SMALL_LATENT = 8
# ... of routed experts: scores and choice, sorting tokens by expert, adding up shared and routed
SMALL_EXPERTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    group: Group
    name: str
    time: KernelTime


@dataclass(frozen=True, slots=True)
class Kernels:
    """The tables of one library, opened once."""

    library: Library
    gemm: Gemm = field(init=False)
    reduce: AllReduce = field(init=False)
    attention: Attention = field(init=False)
    latent: LatentAttention = field(init=False)
    moe: Moe = field(init=False)

    def __post_init__(self) -> None:
        for name, table in (
            ("gemm", Gemm),
            ("reduce", AllReduce),
            ("attention", Attention),
            ("latent", LatentAttention),
            ("moe", Moe),
        ):
            object.__setattr__(self, name, table(self.library))

    def product(self, tokens: int, n: int, k: int, precision: str = "bfloat16") -> KernelTime:
        return self.gemm.at(tokens, max(n, 1), max(k, 1), precision)

    def small(self, tokens: int, width: int, count: float) -> KernelTime:
        """`count` launches that read and write `tokens` rows of `width` bfloat16 values."""
        seconds = LAUNCH_S + 4.0 * tokens * width / self.library.hardware.read_bytes_s
        # fused or not, engines differ by about this
        return KernelTime(seconds * count, 0.5 * seconds * count, 2.0 * seconds * count, "counted launches")


def forward(
    kernels: Kernels, shape: TargetShape, *, batch: int, queries: int, context: int, parallel: int, routing: Routing
) -> tuple[Part, ...]:
    """A step of `batch` requests with `queries` tokens each, all `batch` x `queries` rows through the head.

    Raises:
        MissingKernel: a kernel that no table has.
    """
    tokens = batch * queries
    parts = list(_attention(kernels, shape, batch, queries, context, parallel))
    if shape.num_dense_layers:
        time = mlp(kernels, tokens, shape.hidden, shape.dense_intermediate, parallel, shape.precisions.dense)
        parts.append(Part(group="dense", name="dense MLP", time=time.times(shape.num_dense_layers)))
    if shape.experts is not None:
        parts += _experts(kernels, shape, shape.experts, tokens, parallel, routing)
    reduce = kernels.reduce.at(tokens * shape.hidden, parallel).times(2 * shape.num_layers + 1)
    parts.append(
        Part(group="collectives", name=f"{2 * shape.num_layers + 1} all-reduces of {tokens} x {shape.hidden}", time=reduce)
    )
    head = kernels.product(tokens, -(-shape.vocab // parallel), shape.hidden)
    parts.append(Part(group="head", name="head", time=head))
    small = SMALL_GROUPED if isinstance(shape.attention, GroupedHeads) else SMALL_LATENT
    launches = small * shape.num_layers + (SMALL_EXPERTS * shape.experts.num_layers if shape.experts is not None else 0)
    parts.append(Part(group="small kernels", name=f"{launches} small launches", time=kernels.small(tokens, shape.hidden, launches)))
    return tuple(parts)


def mlp(kernels: Kernels, tokens: int, hidden: int, intermediate: int, parallel: int, precision: str) -> KernelTime:
    """Gate and up as one product, then down."""
    return total(
        (
            kernels.product(tokens, 2 * intermediate // parallel, hidden, precision),
            kernels.product(tokens, hidden, intermediate // parallel, precision),
        )
    )


def total(times: Iterable[KernelTime]) -> KernelTime:
    """One after the other; bounds add up, since the same table errs the same way in every part."""
    found = tuple(times)
    sources = dict.fromkeys(time.source for time in found)
    notes = dict.fromkeys(note for time in found for note in time.notes)
    return KernelTime(
        sum(time.value for time in found),
        sum(time.low for time in found),
        sum(time.high for time in found),
        ", ".join(sources),
        tuple(notes),
    )


def _attention(kernels: Kernels, shape: TargetShape, batch: int, queries: int, context: int, parallel: int) -> Iterable[Part]:
    tokens, hidden, precision = batch * queries, shape.hidden, shape.precisions.attention
    heads = shape.attention
    if isinstance(heads, GroupedHeads):
        local, local_kv = max(heads.heads // parallel, 1), max(heads.kv_heads // parallel, 1)
        projections = total(
            (
                kernels.product(tokens, (local + 2 * local_kv) * heads.head_dim, hidden, precision),
                kernels.product(tokens, hidden, local * heads.head_dim, precision),
            )
        )
        spans = ((shape.num_layers - shape.num_sliding, context, 0), (shape.num_sliding, context, shape.sliding_window))
        for count, span, window in spans:
            if count:
                core = kernels.attention.at(
                    batch=batch,
                    queries=queries,
                    context=span,
                    heads=local,
                    kv_heads=local_kv,
                    head_dim=heads.head_dim,
                    window=window,
                )
                name = f"attention over {min(span, window) if window else span} tokens"
                yield Part(group="attention", name=name, time=core.times(count))
    else:
        projections = _latent_projections(kernels, tokens, hidden, heads, parallel, precision)
        core = kernels.latent.at(batch=batch, queries=queries, context=context, heads=max(heads.heads // parallel, 1))
        yield Part(group="attention", name=f"latent attention over {context} tokens", time=core.times(shape.num_layers))
    yield Part(group="attention", name="its projections", time=projections.times(shape.num_layers))


def _latent_projections(
    kernels: Kernels, tokens: int, hidden: int, heads: LatentHeads, parallel: int, precision: str
) -> KernelTime:
    """Down to both latents (whole on every GPU), up to queries, absorption's two products, and out."""
    local = max(heads.heads // parallel, 1)
    wide = heads.nope_dim + heads.rope_dim
    down = (heads.q_rank or 0) + heads.kv_rank + heads.rope_dim
    up = kernels.product(tokens, local * wide, heads.q_rank or hidden, precision)
    absorbed = local * heads.kv_rank * (heads.nope_dim + heads.v_dim) * WEIGHT_BYTES["bfloat16"]
    batched = 2 * LAUNCH_S + absorbed / kernels.library.hardware.read_bytes_s
    return total(
        (
            kernels.product(tokens, down, hidden, precision),
            up,
            KernelTime.exactly(batched, "bytes of the absorbed products"),
            kernels.product(tokens, hidden, local * heads.v_dim, precision),
        )
    )


def _experts(
    kernels: Kernels, shape: TargetShape, experts: Experts, tokens: int, parallel: int, routing: Routing
) -> Iterable[Part]:
    routed = routed_experts(kernels, shape, experts, tokens, parallel, routing)
    touched = touched_uniform(tokens, experts.top_k, experts.num), touched_skewed(tokens, experts.top_k, experts.num)
    named = f"routed experts ({touched[1]:.0f} to {touched[0]:.0f} of {experts.num} read)"
    yield Part(group="experts", name=named, time=routed.times(experts.num_layers))
    beside = [kernels.product(tokens, experts.num, shape.hidden)]
    if experts.shared:
        beside.append(mlp(kernels, tokens, shape.hidden, experts.shared, parallel, shape.precisions.shared))
    name = "router and shared experts" if experts.shared else "router"
    yield Part(group="experts", name=name, time=total(beside).times(experts.num_layers))


def routed_experts(
    kernels: Kernels, shape: TargetShape, experts: Experts, tokens: int, parallel: int, routing: Routing
) -> KernelTime:
    """The measured kernel at the number of experts that this many tokens touch.

    The "balanced" rows spread tokens as evenly as can be, t tokens over min(top_k t, E) experts, which real routing never does:
    t tokens touch N(t), as many as N(t) / top_k balanced tokens. What a step costs beyond reading experts is the balanced
    time's growth past the point where all are read. Skewed routing also has its own measured rows, where hot experts wait for
    their many tokens.
    """
    times, source = kernels.moe.by_tokens(
        hidden=shape.hidden,
        intermediate=experts.intermediate,
        top_k=experts.top_k,
        num_experts=experts.num,
        precision=shape.precisions.experts,
        tensor_parallel=parallel,
    )
    bytes_each = 3.0 * shape.hidden * experts.intermediate / parallel * WEIGHT_BYTES[shape.precisions.experts]

    def reading(touched: float) -> float:
        return touched * bytes_each / kernels.library.hardware.read_bytes_s

    balanced = times.get("balanced")
    all_read = experts.num / experts.top_k
    found = {}
    for name, touched in (
        ("uniform", touched_uniform(tokens, experts.top_k, experts.num)),
        ("skewed", touched_skewed(tokens, experts.top_k, experts.num)),
    ):
        if balanced is not None:
            work = max(balanced.at(tokens) - balanced.at(all_read), 0.0) if tokens > all_read else 0.0
            found[name] = max(balanced.at(touched / experts.top_k) + work, reading(touched))
    measured = [axis.at(tokens) for name, axis in times.items() if name != "balanced"]
    if measured:
        least = reading(touched_skewed(tokens, experts.top_k, experts.num))
        found["skewed"] = max(sum(measured) / len(measured), least)
    uniform = found.get("uniform", found["skewed"])
    skewed = found.get("skewed", uniform)
    low, high = min(uniform, skewed), max(uniform, skewed)
    value = {"uniform": uniform, "skewed": skewed, "between": (uniform * skewed) ** 0.5}[routing]
    if routing != "between":
        low = high = value
    return KernelTime(value, low, high, source)
