"""Samples to look at: rendered as the target saw them, with what the target wrote told apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from breakeven.drafter.data.prompt_records import Split
from breakeven.drafter.data.samples import Sample
from breakeven.drafter.data.target_files import TargetFiles
from breakeven.errors import DataError

__all__ = ["MarkedSample", "Piece", "marked_samples"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A run of tokens with one mask. `text` holds special tokens by their names."""

    text: str
    written: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedSample:
    """One sample as the target saw it."""

    sample_id: str
    kind: str
    split: Split
    num_prompt_tokens: int
    num_answer_tokens: int
    pieces: tuple[Piece, ...]


def marked_samples(
    path: Path, sides: Mapping[Split, Sequence[Sample]], target: TargetFiles, *, show: int, only: str | None = None
) -> tuple[MarkedSample, ...]:
    """`show` samples spread over both sides, or those of the prompt (or answer) `only`.

    Raises:
        DataError: there is no sample of that id.
    """
    chosen: list[tuple[Split, Sample]] = []
    for side, samples in sides.items():
        if only is not None:
            chosen += [(side, sample) for sample in samples if sample.sample_id == only.partition("-")[0]]
        elif samples and show:
            wanted = -(-show // 2) if side == "train" else show // 2
            chosen += [(side, samples[place * len(samples) // wanted]) for place in range(min(wanted, len(samples)))]
    if only is not None and not chosen:
        raise DataError(f"{path}: no answer to a prompt {only[:40]!a}; expected an id that stands in the file")
    return tuple(
        MarkedSample(
            sample_id=sample.sample_id,
            kind=sample.kind,
            split=side,
            num_prompt_tokens=sample.num_prompt_tokens,
            num_answer_tokens=sum(sample.loss_mask),
            pieces=_pieces(sample, target),
        )
        for side, sample in chosen
    )


def _pieces(sample: Sample, target: TargetFiles) -> tuple[Piece, ...]:
    special = target.tokenizer.special_token_ids
    pieces: list[Piece] = []
    data, written = b"", sample.loss_mask[0]
    for token, masked in zip(sample.token_ids, sample.loss_mask, strict=True):
        if masked != written:
            pieces.append(Piece(text=data.decode("utf-8", "replace"), written=written))
            data, written = b"", masked
        data += (target.tokenizer.token_name(token) or "").encode() if token in special else target.tokenizer.token_bytes(token)
    return (*pieces, Piece(text=data.decode("utf-8", "replace"), written=written))
