"""The keys of a table of reported figures, with their meaning. Users read docs/reported.md, which is generated from it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from breakeven.verdict.reported.cells import Admitted, Conditions, Count, Drafts, Text
from breakeven.verdict.reported.figures import Figure, Length, Milliseconds, Positions, Rate, Share, Speed, Speedup, Threshold

__all__ = ["PointFields", "ReportedRow", "ReportedTable", "SharedFields", "TargetFacts"]


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
    max_running_requests: Admitted = Field(
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
    threshold: Threshold = Field(default=0.03, description="Speedup below which a difference is of no use")
    defaults: SharedFields = Field(default=SharedFields(), description="What every row shares unless it says otherwise")
    rows: tuple[ReportedRow, ...] = Field(min_length=1, description="The arms")
