"""A prediction from kernel tables: no hardware, at most one plain measurement."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from breakeven.costs.acceptance_curve import AcceptanceCurve
from breakeven.costs.kernels.library import SUPPORTED, Library, open_library
from breakeven.costs.prediction_error import KINDS
from breakeven.costs.prior.architecture import GroupedHeads, TargetShape, target_shape
from breakeven.costs.prior.drafter import DrafterShape, default_drafter, described_drafter, drafter_shape
from breakeven.costs.prior.kernel_surface import Breakdown, KernelSurface
from breakeven.costs.prior.memory import cache_bytes, weight_bytes
from breakeven.costs.prior.parts import Kernels, Part, Routing
from breakeven.costs.surface import UnknownCost
from breakeven.doctor.public_figures import public_accept_length
from breakeven.errors import UsageError
from breakeven.verdict.predicted.result import BatchPrediction, PartTime, Prediction, Unpredicted
from breakeven.verdict.predicted.surfaces import batch_predictions, error_bar, headline, with_error

__all__ = ["KernelQuestion", "parse_plain", "predict_from_kernels"]

# engines leave the rest to activations and graphs, the drafter's weights and cache left out
USABLE_MEMORY = 0.95
_PLAIN = re.compile(r"(?:B\s*=\s*)?(?P<batch>\d{1,6})\s*:\s*(?P<figure>\d+(?:\.\d+)?)\s*(?P<unit>tok/s|ms)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelQuestion:
    """What is asked. `named`: the target as the user wrote it; `drafter`: a folder, sizes in words, or None for the usual shape."""

    named: str
    target: Path
    drafter: Path | str | None
    system: str
    engine: str
    tensor_parallel: int
    context: int
    routing: Routing = "between"
    measured_plain: Mapping[int, float] = field(default_factory=dict)


def parse_plain(texts: Sequence[str]) -> dict[int, float]:
    """Seconds of a plain step by batch, from "B=8:313 tok/s" (of the whole server) or "B=8:25.6 ms" (per step).

    Raises:
        UsageError: another form, or no positive figure.
    """
    found = {}
    for text in texts:
        match = _PLAIN.fullmatch(text.strip())
        if match is None or int(match["batch"]) < 1 or float(match["figure"]) <= 0.0:
            raise UsageError(
                f"--measured-plain {text[:60]!a}: expected a batch and a figure, as in 'B=1:63.6 tok/s' or 'B=1:15.7 ms'"
            )
        batch, figure = int(match["batch"]), float(match["figure"])
        if batch in found:
            raise UsageError(f"--measured-plain {text[:60]!a}: B={batch} was given already; give one plain figure for each batch")
        found[batch] = figure * 1e-3 if match["unit"].lower() == "ms" else batch / figure
    return found


def predict_from_kernels(
    question: KernelQuestion,
    acceptance: AcceptanceCurve | None,
    batches: Sequence[int],
    drafts: Sequence[int],
    *,
    threshold: float,
) -> Prediction:
    """Raises CheckpointError, UsageError: a model, system or engine that cannot be priced."""
    target = target_shape(question.target)
    drafter = _drafter(question.drafter, target)
    library = open_library(question.system, question.engine)
    _check_split(question, target, library.hardware.num_gpus)
    surface = KernelSurface(
        kernels=Kernels(library),
        target=target,
        drafter=drafter,
        parallel=question.tensor_parallel,
        context=question.context,
        routing=question.routing,
        measured_plain=question.measured_plain,
    )
    error = KINDS["kernel tables"]
    too_much = {batch: reason for batch in batches if (reason := _does_not_fit(question, target, library, batch))}
    fitting = [batch for batch in batches if batch not in too_much]
    found, unknown = batch_predictions(with_error(surface, error), acceptance, fitting, drafts, threshold=threshold)
    unknown = (*unknown, *(Unpredicted(label=f"B={batch}", reason=reason) for batch, reason in too_much.items()))
    found = tuple(_explained(surface, batch) for batch in found)
    layers = f"{drafter.num_layers} layer{'s' if drafter.num_layers > 1 else ''} of width {drafter.hidden}"
    notes = [
        f"Kernels: {library.engine} {library.engine_release} on {library.system}, as timed in aiconfigurator-core {library.release}"
        + ("" if library.release == SUPPORTED else f" (its tables were read for {SUPPORTED}; this release is unverified)"),
        f"Drafter: {drafter.name}, {layers}, {drafter.draft_vocab} draft tokens",
        f"Context: {question.context} cached tokens a request; attention grows with it{_beyond(question, target)}",
    ]
    if not question.measured_plain:
        notes.append(
            "Not calibrated: one plain figure of your machine (--measured-plain 'B=1:63.6 tok/s') sets the times; c moves little"
        )
    if target.experts is not None:
        ways = {"between": "between uniform and skewed routing, the interval spans both"}
        notes.append(f"Experts read: {ways.get(question.routing, question.routing + ' routing')}")
    notes += _borrowed(found, library.engine)
    for num_drafted in drafts if acceptance is None else ():
        public = public_accept_length(question.named, num_drafted)
        if public is not None:
            lengths = f"{public.low:.2f}" + (f" to {public.high:.2f}" if public.high > public.low else "")
            notes.append(f"Published accept length of heads for this target at k={num_drafted}: {lengths} ({public.source})")
    return Prediction(
        kind="kernel tables",
        title=f"{question.named}, {library.engine} on {question.tensor_parallel}x {library.system}",
        headline=headline(found, threshold),
        threshold=threshold,
        error=error_bar(error),
        batches=found,
        unpredicted=unknown,
        notes=tuple(notes),
        next_measurements=_next(found, calibrated=bool(question.measured_plain)),
    )


def _drafter(asked: Path | str | None, target: TargetShape) -> DrafterShape:
    if asked is None:
        return default_drafter(target)
    return described_drafter(asked, target) if isinstance(asked, str) else drafter_shape(asked, target)


def _check_split(question: KernelQuestion, target: TargetShape, num_gpus: int) -> None:
    parallel = question.tensor_parallel
    if parallel > num_gpus:
        raise UsageError(
            f"--tp {parallel}: {question.system} has {num_gpus} GPUs in a node; collectives across nodes are not priced"
        )
    if target.attention.heads % parallel:
        raise UsageError(f"--tp {parallel}: {target.attention.heads} attention heads do not split evenly over it")
    heads = target.attention
    if isinstance(heads, GroupedHeads) and heads.kv_heads % parallel and parallel % heads.kv_heads:
        raise UsageError(f"--tp {parallel}: {heads.kv_heads} key/value heads neither split over it nor repeat evenly")


def _does_not_fit(question: KernelQuestion, target: TargetShape, library: Library, batch: int) -> str:
    """Why so many requests of that context cannot run at once; empty where they can, or where the memory is not on record."""
    memory = library.hardware.memory_bytes
    if memory is None:
        return ""
    usable = USABLE_MEMORY * memory
    weights = weight_bytes(target, question.tensor_parallel)
    request = cache_bytes(target, question.context, question.tensor_parallel)
    has = f"of the {memory / 1e9:.0f} GB that one has, {usable / 1e9:.0f} can be used"
    if weights >= usable:
        return f"{weights / 1e9:.0f} GB of weights for each GPU at --tp {question.tensor_parallel}; {has}: split it over more"
    if weights + batch * request <= usable:
        return ""
    most = int((usable - weights) / request)
    return (
        f"{weights / 1e9:.0f} GB of weights and {batch * request / 1e9:.0f} GB of cached tokens (bfloat16) for each GPU; {has}: at "
        f"most {most} requests of {question.context} tokens run at once"
    )


def _beyond(question: KernelQuestion, target: TargetShape) -> str:
    limit = target.max_positions
    if limit is None or question.context <= limit:
        return ""
    return f". That is beyond the {limit} positions of its config.json: served only where they are extended"


def _explained(surface: KernelSurface, batch: BatchPrediction) -> BatchPrediction:
    """With plain step, round times, and the parts at the number of drafts that is best, or three or the nearest to it."""
    drafts = [point.num_draft_tokens for point in batch.points]
    shown = batch.best if batch.best is not None else min(drafts, key=lambda num_drafted: (abs(num_drafted - 3), num_drafted))
    try:
        breakdown = surface.breakdown(batch.batch, shown)
        points = tuple(
            point.model_copy(update={"round_s": surface.breakdown(batch.batch, point.num_draft_tokens).round_s})
            for point in batch.points
        )
    except UnknownCost:
        return batch
    return batch.model_copy(update={"plain_s": breakdown.plain_s, "points": points, "parts": _parts(breakdown), "parts_for": shown})


def _parts(breakdown: Breakdown) -> tuple[PartTime, ...]:
    def of(phase: str, parts: tuple[Part, ...]) -> list[PartTime]:
        return [
            PartTime.model_validate(
                {
                    "phase": phase,
                    "group": part.group,
                    "name": part.name,
                    "seconds": part.time.value,
                    "source": "; ".join((part.time.source, *part.time.notes)),
                }
            )
            for part in parts
        ]

    return (*of("plain", breakdown.plain), *of("verify", breakdown.verify), *of("draft", breakdown.draft))


def _borrowed(batches: Sequence[BatchPrediction], engine: str) -> list[str]:
    """Kernels that this engine has no rows of, read from the other engine's."""
    found: dict[str, set[str]] = defaultdict(set)
    for batch in batches:
        for part in batch.parts:
            for source in re.findall(r"(?:sglang|vllm) [\w.]+", part.source):
                if not source.startswith(engine):
                    found[source].add(part.group)
    return [f"Read from {source} for lack of {engine}'s own rows: {', '.join(sorted(groups))}" for source, groups in found.items()]


def _next(batches: Sequence[BatchPrediction], *, calibrated: bool) -> tuple[str, ...]:
    steps = []
    if not calibrated:
        steps.append("Plain decoding at one batch size: sets the times above to those of your machine.")
    judged = [(batch, point) for batch in batches for point in batch.points if point.outcome == "undecided" and point.speedup]
    if judged:
        batch, point = min(judged, key=lambda one: abs(one[1].speedup.value - 1.0) if one[1].speedup else 0.0)
        steps.append(
            f"Forced acceptance at B={batch.batch}, k={point.num_draft_tokens} with a head of the right shape (breakeven head): "
            "that point decides most and needs no training."
        )
    elif batches:
        steps.append("Forced acceptance with a head of the right shape (breakeven head): turns this prior into a measured surface.")
    return tuple(steps)
