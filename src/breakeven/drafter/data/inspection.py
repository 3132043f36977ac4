"""A training file looked over before anybody trains on it: figures, and a few samples with what the target wrote marked.

Everything that has made drafters useless without an error can be seen here: prompts rendered with another template than the target
is served with, a mask over prompts, answers that loop or were cut off, too little data of a kind, held-out prompts that training
has seen, a draft vocabulary that misses what the target says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from breakeven.drafter.data.marked_samples import MarkedSample, marked_samples
from breakeven.drafter.data.near_duplicates import near_any, signatures
from breakeven.drafter.data.prompt_records import Split, checked_messages
from breakeven.drafter.data.reading import ReadReport, read_header, read_records, read_samples
from breakeven.drafter.data.samples import Sample
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.drafter.data.training_records import SCHEMA_VERSION
from breakeven.drafter.data.vocabulary import count_tokens, coverage_curve, required_tokens
from breakeven.errors import BreakevenError, DataError

__all__ = ["Inspection", "Lengths", "inspect_training_file"]

Sides = Mapping[Split, Sequence[Sample]]

VOCABULARY_SIZES = (2_000, 4_000, 8_192, 16_384, 32_768, 65_536, 131_072)
NUM_BINS = 12
# Rendering all prompts again would take longer than everything else; the first ones tell.
MAX_RENDERED = 1000
# Signatures of more texts than this take minutes.
MAX_COMPARED = 200_000


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Lengths(_Model):
    """Token counts of one part of the samples."""

    mean: float
    median: int
    p95: int
    longest: int
    bin_starts: tuple[int, ...] = Field(description="First length of each bin; the last bin ends with the longest")
    bin_counts: tuple[int, ...]


class SideCounts(_Model):
    """One kind of prompt, on each side of the split."""

    train: int = 0
    held_out: int = 0
    looping: int = Field(default=0, description="Answers that loop, both sides")


class CoveragePoint(_Model):
    size: int = Field(description="Tokens in the draft vocabulary")
    train: float | None = Field(description="Share of training answer tokens in it")
    held_out: float | None = Field(description="Share of held-out answer tokens in it")


class Doubt(_Model):
    """Something about this file that training should not meet unsaid."""

    what: str
    remedy: str


class Inspection(_Model):
    """What `data inspect --json` prints."""

    schema_version: int = SCHEMA_VERSION
    file: str
    target: str = Field(description="Name and fingerprint of the target in the file's header; empty where it has none")
    settings: dict[str, Any] = Field(description="How the answers were asked for")
    num_answers: int
    num_tokens: int = Field(description="Prompts and answers")
    num_answer_tokens: int
    kinds: dict[str, SideCounts]
    token_sources: dict[str, int] = Field(description="exact, rendered, none")
    sampling: dict[str, int] = Field(description="greedy, sampled, unknown")
    looping_share: dict[str, float] = Field(description="Share of answers that loop, by how they were drawn, and of all")
    finish_reasons: dict[str, int]
    skipped: dict[str, int] = Field(description="Answers that never came, by reason")
    num_prompts: int
    num_equal_answers: int = Field(description="Answers that are word for word those of another prompt")
    num_near_held_out: int | None = Field(
        description="Held-out prompts without a topic that have a near-duplicate in training; None: too many to compare"
    )
    num_rendered: int = Field(description="Prompts rendered again with the target's template")
    num_rendered_otherwise: int = Field(description="Those that came out different from the ids in the file")
    prompt_lengths: Lengths | None
    answer_lengths: Lengths | None
    coverage: tuple[CoveragePoint, ...]
    doubts: tuple[Doubt, ...]


def inspect_training_file(
    path: Path, target: TargetFiles, *, show: int = 3, only: str | None = None
) -> tuple[Inspection, tuple[MarkedSample, ...]]:
    """Figures of the whole file, and `show` samples spread over it, or those of the prompt `only`.

    Raises:
        DataError: another target's file, a broken line, or no sample of that id.
    """
    header = read_header(path)
    reports: dict[Split, ReadReport] = {"train": ReadReport(), "held_out": ReadReport()}
    sides = {side: list(read_samples(path, split=side, target=target, report=reports[side])) for side in reports}
    seen = _Seen()
    for number, record in read_records(path):
        if "skipped" in record:
            seen.skipped[str(record["skipped"])[:200]] += 1
            continue
        try:
            seen.take(record, target)
        except (BreakevenError, ValueError, TypeError, LookupError, AttributeError) as error:
            raise DataError(f"{path}, line {number}: {type(error).__name__}: {error}") from error
    everything = [*sides["train"], *sides["held_out"]]
    vocab_size = target.identity.vocab_size
    train, held_out = (count_tokens(sides[side], vocab_size) for side in ("train", "held_out"))
    required = required_tokens(target, train)
    sizes = [size for size in VOCABULARY_SIZES if len(required) <= size < vocab_size]
    curve = coverage_curve(train, held_out, sizes, required) if train.answers.any() else ()
    num_near = _num_near(seen)
    inspection = Inspection(
        file=str(path),
        target=f"{header.target.name} ({header.target.fingerprint})" if header.target is not None else "",
        settings=dict(header.settings),
        num_answers=len(everything),
        num_tokens=sum(report.num_tokens for report in reports.values()),
        num_answer_tokens=sum(report.num_answer_tokens for report in reports.values()),
        kinds={kind: SideCounts(**counts) for kind, counts in sorted(seen.kinds.items())},
        token_sources=dict(seen.sources),
        sampling=dict(seen.sampling),
        looping_share=seen.looping_shares(),
        finish_reasons=dict(seen.finish_reasons),
        skipped=dict(seen.skipped.most_common(20)),
        num_prompts=len(seen.prompts["train"]) + len(seen.prompts["held_out"]),
        num_equal_answers=_num_equal(everything),
        num_near_held_out=num_near,
        num_rendered=seen.num_rendered,
        num_rendered_otherwise=seen.num_rendered_otherwise,
        prompt_lengths=_lengths([sample.num_prompt_tokens for sample in everything]),
        answer_lengths=_lengths([len(sample.token_ids) - sample.num_prompt_tokens for sample in everything]),
        coverage=tuple(CoveragePoint(size=point.size, train=point.train, held_out=point.held_out) for point in curve),
        doubts=tuple(_doubts(seen, sides, num_near, sum(report.num_cut for report in reports.values()), target)),
    )
    return inspection, marked_samples(path, sides, target, show=show, only=only)


class _Seen:
    """What one pass over the lines adds up to."""

    def __init__(self) -> None:
        self.kinds: dict[str, Counter[str]] = {}
        self.sources: Counter[str] = Counter()
        self.sampling: Counter[str] = Counter()
        self.looping: Counter[str] = Counter()
        self.finish_reasons: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.prompts: dict[str, dict[str, str]] = {"train": {}, "held_out": {}}
        # built-in combinations: those of one instruction are alike on both sides, and their topics are not
        self.with_topic: set[str] = set()
        self.num_rendered = self.num_rendered_otherwise = 0

    def take(self, record: Mapping[str, Any], target: TargetFiles) -> None:
        messages = checked_messages(record["messages"])
        counts = self.kinds.setdefault(record["kind"], Counter())
        counts[record["split"]] += 1
        sampling = record["sampling"]
        how = "unknown" if sampling is None else "greedy" if sampling["temperature"] == 0 else "sampled"
        self.sampling[how] += 1
        if record["looping"] is not None:
            counts["looping"] += 1
            self.looping[how] += 1
        self.sources[str(record["tokens"])] += 1
        self.finish_reasons[str(record["finish_reason"])[:40]] += 1
        asked = "\n".join(message["content"] for message in messages if message["role"] == "user")
        self.prompts[record["split"]].setdefault(record["prompt_id"], asked)
        if record["topic"] is not None:
            self.with_topic.add(record["prompt_id"])
        if record["token_ids"] and self.num_rendered < MAX_RENDERED:
            self.num_rendered += 1
            rendered = list(target.prompt_ids(messages[:-1]))
            self.num_rendered_otherwise += rendered != record["token_ids"][: record["num_prompt_tokens"]]

    def looping_shares(self) -> dict[str, float]:
        shares = {name: self.looping[name] / count for name, count in sorted(self.sampling.items()) if count}
        total = self.sampling.total()
        return {**shares, "all": self.looping.total() / total} if total else shares


def _num_near(seen: _Seen) -> int | None:
    train = list(seen.prompts["train"].values())
    held_out = [text for prompt, text in seen.prompts["held_out"].items() if prompt not in seen.with_topic]
    if len(train) + len(held_out) > MAX_COMPARED:
        return None
    return int(near_any(signatures(held_out), signatures(train)).sum()) if train and held_out else 0


def _num_equal(samples: Sequence[Sample]) -> int:
    prompts_of: dict[tuple[int, ...], set[str]] = {}
    for sample in samples:
        prompts_of.setdefault(sample.token_ids[sample.num_prompt_tokens :], set()).add(sample.sample_id)
    return sum(len(prompts) for prompts in prompts_of.values() if len(prompts) > 1)


def _lengths(counts: Sequence[int]) -> Lengths | None:
    if not counts:
        return None
    array = np.array(counts)
    edges = np.linspace(int(array.min()), int(array.max()) + 1, NUM_BINS + 1).astype(int)
    starts = sorted(set(edges[:-1].tolist()))
    binned, _ = np.histogram(array, [*starts, int(array.max()) + 1])
    return Lengths(
        mean=float(array.mean()),
        median=int(np.median(array)),
        p95=int(np.percentile(array, 95)),
        longest=int(array.max()),
        bin_starts=tuple(starts),
        bin_counts=tuple(binned.tolist()),
    )


def _doubts(seen: _Seen, sides: Sides, num_near: int | None, num_cut: int, target: TargetFiles) -> list[Doubt]:
    doubts: list[Doubt] = []
    total = seen.sampling.total()

    def doubt(what: str, remedy: str) -> None:
        doubts.append(Doubt(what=what, remedy=remedy))

    for side, samples in sides.items():
        if not samples:
            doubt(
                f"there are no {'training' if side == 'train' else 'held-out'} answers",
                "make more prompts, or another share of them held out: breakeven data prompts --held-out",
            )
    if num_cut:
        doubt(
            f"{num_cut} samples are longer than the target's context of {target.context_length} tokens, and are cut there",
            "lower --max-tokens, or serve a context that long",
        )
    if seen.num_rendered_otherwise:
        doubt(
            f"{seen.num_rendered_otherwise} of the first {seen.num_rendered} prompts are rendered otherwise by this target's "
            "template than they were when they were answered",
            "serve and train with one template; one that shows the date renders every day anew, which is harmless",
        )
    if seen.sources["rendered"] + seen.sources["none"]:
        doubt(
            f"{seen.sources['rendered'] + seen.sources['none']} of {total} answers have no ids of the target's own: their text was "
            "tokenized again, perhaps otherwise than the target wrote it",
            "use a server with return_token_ids (vLLM, SGLang, the embedded one), or a folder as --target",
        )
    if total and seen.looping.total() > 0.25 * total:
        doubt(
            f"{seen.looping.total() / total:.0%} of the answers loop, which is easy to draft and teaches little",
            "train without them (keep_looping: false), or sample more and answer less greedily",
        )
    if total and seen.finish_reasons["length"] > 0.5 * total:
        doubt(
            f"{seen.finish_reasons['length'] / total:.0%} of the answers were cut off by their token limit: the drafter sees few "
            "endings",
            "raise --max-tokens",
        )
    if num_near:
        doubt(
            f"{num_near} held-out prompts have a near-duplicate in training: accept lengths on them flatter",
            "make the prompts again with breakeven data prompts, which keeps near-duplicates on one side",
        )
    return doubts
