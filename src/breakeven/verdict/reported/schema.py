"""A table of reported figures as it may be written: every key, its meaning, what is refused. Users read docs/reported.md.

Numbers arrive as text, so that `1.00` keeps its digits: how precisely a figure was printed decides what can be read from it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator

from breakeven.printed.figures import PrintedFigure

__all__ = ["NOT_KNOWN", "Cap", "PointFields", "ReportedRow", "ReportedTable", "SharedFields", "TargetFacts"]

# What people write into a cell whose figure they do not have.
NOT_KNOWN = frozenset(
    {"", "-", "--", "–", "—", "?", "~", "null", "na", "n/a", "unknown", "not known", "not reported", "not given", "none"}
)

_PER_GPU = re.compile(r"(/|\bper)\s*(gpu|device|card|chip)\b", re.IGNORECASE)
_SECONDS = re.compile(r"(?<![a-zµ])(s|sec|secs|seconds?)(\s*/\s*tok(en)?)?$", re.IGNORECASE)
MAX_RUNS, MAX_CONDITIONS, MAX_POSITIONS = 100, 30, 64
# no server answers one request faster than this, so a smaller "tpot_ms" was meant in seconds
SHORTEST_TPOT_MS = 0.1
_UNITS = re.compile(r"\s*(tok(ens)?\s*/\s*s(ec)?|tokens? per second|t/s|tps|ms|gb)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Cap:
    """How many requests may run at once: a number, no limit (`number` None), or the engine's default, its flag not given."""

    number: int | None = None
    is_default: bool = False


def _scalar(value: Any) -> str:
    if isinstance(value, (list, dict)):
        raise ValueError(f"must be a single value, not a {'list' if isinstance(value, list) else 'mapping'}")
    return str(value).strip()


def _figure(value: Any) -> PrintedFigure | None:
    text = _scalar(value)
    if text.lower() in NOT_KNOWN:
        return None
    if _PER_GPU.search(text):
        raise ValueError(f"{_shown(text)} is for each GPU; give that of the whole server, times its number of GPUs")
    try:
        return PrintedFigure.parse(_UNITS.sub("", text))
    except ValueError as error:
        raise ValueError(f"{_shown(text)} {error}") from None


def _positive(value: Any) -> PrintedFigure | None:
    figure = _figure(value)
    if figure is not None and (figure.value <= 0.0 or figure.is_percent):
        raise ValueError(f"{_shown(str(value))} must be a plain number above 0; leave the field out where nothing was measured")
    return figure


def _runs(read: Callable[[Any], PrintedFigure | None]) -> Callable[[Any], PrintedFigure | None]:
    """A figure, or the figures of several runs of the same thing: a list, or text with " / " between them."""

    def several(value: Any) -> PrintedFigure | None:
        parts = value.split(" / ") if isinstance(value, str) and " / " in value else value
        if not isinstance(parts, list):
            return read(parts)
        if not 0 < len(parts) <= MAX_RUNS:
            raise ValueError(f"has {len(parts)} runs; expected 1 to {MAX_RUNS}")
        figures = [read(part) for part in parts]
        known = [figure for figure in figures if figure is not None]
        if len(known) < len(figures):
            raise ValueError("lists runs without a figure; leave those out")
        return PrintedFigure.of_runs(known)

    return several


def _conditions(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError("must be a mapping of a setting's name to its value, such as {chunked_prefill: on}")
    if len(value) > MAX_CONDITIONS:
        raise ValueError(f"has {len(value)} settings; at most {MAX_CONDITIONS}")
    found = {_text(name).lower().replace(" ", "_").replace("-", "_"): _known_text(inner) for name, inner in value.items()}
    return {name: inner for name, inner in found.items() if inner is not None}


def _speedup(value: Any) -> PrintedFigure | None:
    text = _scalar(value)
    if text.lower() in NOT_KNOWN:
        return None
    try:
        figure = PrintedFigure.parse_ratio(text)
    except ValueError as error:
        raise ValueError(f"{_shown(text)} {error}") from None
    if figure.value <= 0.0:
        raise ValueError(f"{_shown(text)} must be above 0; leave the field out where nothing was measured")
    return figure


def _milliseconds(value: Any) -> PrintedFigure | None:
    text = _scalar(value)
    if _SECONDS.search(text):
        raise ValueError(f"{_shown(text)} is in seconds; give milliseconds, 1000 times as many")
    figure = _positive(text)
    if figure is not None and figure.value < SHORTEST_TPOT_MS:
        raise ValueError(
            f"{_shown(text)} would be {1000.0 / figure.value:.0f} tokens/s of one request; is it in seconds? Give milliseconds"
        )
    return figure


def _length(value: Any) -> PrintedFigure | None:
    figure = _figure(value)
    if figure is not None and figure.is_percent:
        raise ValueError(f"{_shown(str(value))} is a percentage; an accept length counts tokens. Is it the accept_rate?")
    return figure


def _share(value: Any) -> PrintedFigure | None:
    figure = _figure(value)
    if figure is not None and figure.value > 1.0:
        raise ValueError(f"{_shown(str(value))} must lie between 0 and 1, or carry a percent sign")
    return figure


def _threshold(value: Any) -> float:
    share = _share(value)
    if share is None or share.value >= 1.0:
        raise ValueError(f"{_shown(str(value))} must lie between 0 and 1, such as 0.03")
    return share.value


def _rate(value: Any) -> PrintedFigure | None:
    if isinstance(value, list):
        raise ValueError(
            "shares by position are not one rate; give accept_length instead, which is 1 plus their sum where each is the share of "
            "rounds that accepted so far (vLLM's per-position rates are)"
        )
    figure = _figure(value)
    if figure is None or figure.is_percent or figure.value <= 1.0:
        if figure is not None and figure.value > 1.5:
            raise ValueError(f"{_shown(str(value))} is more than all of the drafts")
        return figure
    if 2.0 <= figure.value <= 100.0:
        return PrintedFigure(figure.value / 100.0, figure.half_width / 100.0, f"{figure.text} %", is_percent=True)
    raise ValueError(f"{_shown(str(value))} is neither a share (0 to 1) nor plainly a percentage: write 0.42 or 42 %")


def _positions(value: Any) -> tuple[PrintedFigure, ...] | None:
    if not isinstance(value, list):
        text = _scalar(value)
        if text.lower() in NOT_KNOWN:
            return None
        value = re.split(r"\s*[/;|]\s*|,\s+", text.strip("[]() "))
    if len(value) > MAX_POSITIONS:
        raise ValueError(f"has {len(value)} positions; at most {MAX_POSITIONS}")
    shares = tuple(figure for one in value if (figure := _rate(one)) is not None)
    if len(shares) < len(value) or not shares:
        raise ValueError("lists positions without a share; give one for each draft, such as 0.76, 0.60, 0.50")
    for before, after in itertools.pairwise(shares):
        if after.value - after.half_width > before.value + before.half_width:
            raise ValueError(
                f"rises from {before} to {after}: the share of rounds that accepted so far can only fall. Shares that are each "
                "given those before are to be multiplied first"
            )
    return shares


def _count(value: Any) -> int | None:
    figure = _figure(value)
    if figure is None:
        return None
    if figure.is_percent or figure.value != int(figure.value) or figure.value > 10**7:
        raise ValueError(f"{_shown(str(value))} is not a whole number")
    return int(figure.value)


def _at_least_one(value: Any) -> int | None:
    count = _count(value)
    if count is not None and count < 1:
        raise ValueError(f"{_shown(str(value))} must be 1 or more; leave the field out where it is not known")
    return count


def _cap(value: Any) -> Cap | None:
    text = _scalar(value).lower()
    if text in {"none", "no limit", "unlimited"}:
        return Cap()
    if text in NOT_KNOWN:
        return None
    match = re.fullmatch(r"(?P<number>\d+)?\s*\(?(?:by )?(?P<default>default)?\)?", text)
    if match is None or text.startswith("("):
        raise ValueError(f"{_shown(str(value))} must be a number, 'none' (no limit), 'default' (flag not given) or '64 (default)'")
    number = None if match["number"] is None else _at_least_one(match["number"])
    return Cap(number=number, is_default=match["default"] is not None)


def _text(value: Any) -> str:
    text = " ".join(_scalar(value).split())
    if any(not character.isprintable() for character in text):
        raise ValueError(f"{_shown(text)} has control characters in it")
    return text


def _known_text(value: Any) -> str | None:
    text = _text(value)
    return None if text.lower() in NOT_KNOWN - {"none"} else text


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


Figure = Annotated[PrintedFigure | None, PlainValidator(_positive)]
Speed = Annotated[PrintedFigure | None, PlainValidator(_runs(_positive))]
Length = Annotated[PrintedFigure | None, PlainValidator(_length)]
Rate = Annotated[PrintedFigure | None, PlainValidator(_rate)]
Positions = Annotated[tuple[PrintedFigure, ...] | None, PlainValidator(_positions)]
Share = Annotated[PrintedFigure | None, PlainValidator(_share)]
Count = Annotated[int | None, PlainValidator(_at_least_one)]
# 0 is how base arms are often written, and arms whose drafter is loaded and drafts nothing
Drafts = Annotated[int | None, PlainValidator(_count)]
Speedup = Annotated[PrintedFigure | None, PlainValidator(_speedup)]
Milliseconds = Annotated[PrintedFigure | None, PlainValidator(_runs(_milliseconds))]
Conditions = Annotated[dict[str, str], PlainValidator(_conditions)]
Text = Annotated[str | None, PlainValidator(_known_text)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class PointFields(_Strict):
    """One load point of an arm."""

    concurrency: Count = Field(default=None, description="Requests in flight that the client kept up; leave out if not known")
    workload: Text = Field(default=None, description="Prompts or data set; only equal workloads are compared")
    input_tokens: Count = Field(default=None, description="Mean prompt tokens of a request; arms with others are not compared")
    output_tokens: Count = Field(default=None, description="Mean output tokens of a request; arms with others are not compared")
    throughput_tok_s: Speed = Field(default=None, description="Output tokens/s of the whole server there; several runs as a list")
    request_speed_tok_s: Speed = Field(default=None, description="Output tokens/s of one request at that concurrency")
    tpot_ms: Milliseconds = Field(default=None, description="The same as milliseconds per output token")
    speedup: Speedup = Field(default=None, description="Over plain decoding at that concurrency, where its speed was not reported")
    accept_length: Length = Field(default=None, description="As printed by the engine, with all its digits")
    accept_rate: Rate = Field(default=None, description="As printed: a share such as 0.42, or 42 %")
    accept_by_position: Positions = Field(
        default=None, description="Share of rounds that accepted the first draft, the first two, ...: 0.76, 0.60, 0.50"
    )
    cost_ratio: Figure = Field(default=None, description="Round time over plain step time at that concurrency, if it was measured")
    temperature: Text = Field(default=None, description="Of sampling; arms with others are not compared")
    prefix_caching: Text = Field(default=None, description="on or off; arms with others are not compared")
    warm_up: Text = Field(default=None, description="Whether the figure leaves a warm-up out: yes or no, or how long it was")
    statistic: Text = Field(default=None, description="What speeds are: mean, median, p99; arms with others are not compared")
    settings: Conditions = Field(
        default={}, description="Whatever else arms must share to be compared: {chunked_prefill: on, max_model_len: 8192}"
    )


class SharedFields(PointFields):
    """What rows may share: everything but their name."""

    engine: Text = Field(default=None, description="sglang, vllm, ...; may carry the release: sglang 0.5.9")
    version: Text = Field(default=None, description="Release of the engine, from its banner or pip")
    drafter: Text = Field(default=None, description="Name of the drafter; none for plain decoding")
    method: Text = Field(default=None, description="eagle3, ngram, mtp, ...; none for plain decoding")
    steps: Drafts = Field(default=None, description="SGLang's --speculative-num-steps")
    topk: Drafts = Field(default=None, description="SGLang's --speculative-eagle-topk; above 1 is a tree")
    draft_tokens: Drafts = Field(
        default=None,
        description="The engine's own flag: SGLang's --speculative-num-draft-tokens (root included), vLLM's num_speculative_tokens",
    )
    figures_from: Literal["log", "per request", "benchmark"] | None = Field(
        default=None, description="Where length and rate were printed; log (the default) also stands for metrics"
    )
    bonus: Literal["included", "excluded"] | None = Field(
        default=None, description="Whether accept_length counts the bonus token, where the source says so or you worked it out"
    )
    drafted_share: Share = Field(default=None, description="Share of decode steps that carried drafts (n-gram drafting)")
    single_stream_tok_s: Speed = Field(default=None, description="Output tokens/s with one request running")
    peak_tok_s: Speed = Field(default=None, description="Best output tokens/s of the whole server, at whatever concurrency")
    max_running_requests: Annotated[Cap | None, PlainValidator(_cap)] = Field(
        default=None,
        description="A number, none (no limit), default (flag not given), or 64 (default): the log's number without the flag",
    )
    tensor_parallel: Count = Field(default=None, description="GPUs one replica is split over")
    hardware: Text = Field(default=None, description="Where not all arms ran on the same: GPUs and their number")
    quantization: Text = Field(default=None, description="Of the target's weights: int4, fp8, nvfp4, none")
    notes: Text = Field(default=None, description="Anything else; shown, never judged")


class ReportedRow(SharedFields):
    """One arm, or one load point of an arm: rows of the same `arm` are one arm."""

    arm: Text = Field(default=None, description="Name of the configuration; made from engine and drafter where left out")
    points: tuple[PointFields, ...] = Field(default=(), description="Several load points of this arm")


class TargetFacts(_Strict):
    name: Text = Field(default=None, description="Name of the target, as on its card")
    model_type: Text = Field(default=None, description="model_type of its config.json")
    quantization: Text = Field(default=None, description="Where all arms share it")
    weights_gb: Figure = Field(default=None, description="Size of the weights; shown, never judged")
    notes: Text = Field(default=None, description="Anything else; shown, never judged")


class ReportedTable(_Strict):
    """The whole file."""

    name: Text = Field(default=None, description="Title of the verdict")
    source: Text = Field(default=None, description="Who reported it, where")
    target: TargetFacts = Field(default=TargetFacts(), description="What is served; see below")
    hardware: Text = Field(default=None, description="GPUs and their number")
    threshold: Annotated[float, PlainValidator(_threshold)] = Field(
        default=0.03, description="Speedup below which a difference is of no use"
    )
    defaults: SharedFields = Field(default=SharedFields(), description="What every row shares unless it says otherwise")
    rows: tuple[ReportedRow, ...] = Field(min_length=1, description="The arms")
