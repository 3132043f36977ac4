"""Logs as servers write them, built line by line from the figures of a case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from breakeven.readers.files import Told, read_files
from breakeven.readers.reading import Reading, ReadResult


def sgl(
    length: float | str | None,
    rate: float | str | None,
    *,
    running: int = 8,
    queued: int = 0,
    speed: float = 500.0,
    tokens: int = 8000,
    graph: str = "cuda graph: True",
    at_s: int = 0,
    style: str = "0.5.6",
    rank: str = " TP0",
) -> str:
    """One SGLang decode line as its release writes it."""
    after = {"0.5.3": ".", "0.5.4": f" [{at_s * 40}],", "0.5.6": ",", "0.5.10": ","}[style]
    stamp = f"[2026-03-0{1 + at_s // 86400} {at_s // 3600 % 24:02d}:{at_s // 60 % 60:02d}:{at_s % 60:02d}{rank}]"
    drafts = "" if length is None else f"accept len: {length:.2f}, " if isinstance(length, float) else f"accept len: {length}, "
    drafts += "" if rate is None else f"accept rate: {rate:.2f}, " if isinstance(rate, float) else f"accept rate: {rate}, "
    end = "" if style == "0.5.10" else ", "
    return (
        f"{stamp} Decode batch{after} #running-req: {running}, #token: {tokens}, token usage: 0.05, {drafts}{graph}, "
        f"gen throughput (token/s): {speed:.2f}, #queue-req: {queued}{end}\n"
    )


def prefill(new: int, cached: int, at_s: int = 0) -> str:
    return (
        f"[2026-03-01 {at_s // 3600:02d}:{at_s // 60 % 60:02d}:{at_s % 60:02d} TP0] Prefill batch, #new-seq: 1, #new-token: {new}, "
        f"#cached-token: {cached}, token usage: 0.05, #running-req: 7, #queue-req: 0, \n"
    )


def vllm(
    joint: Sequence[float],
    drafts: int,
    *,
    at_s: int = 0,
    interval_s: float = 10.0,
    bonus: bool = True,
    length: float | None = None,
    old_order: bool = False,
) -> str:
    """One vLLM line about drafts, every draft of full length."""
    accepted, drafted = round(sum(joint) * drafts), len(joint) * drafts
    shown = accepted / drafts + (1.0 if bonus else 0.0) if length is None else length
    rates = ", ".join(f"{rate:.3f}" for rate in joint)
    stamp = f"INFO 03-01 {at_s // 3600:02d}:{at_s // 60 % 60:02d}:{at_s % 60:02d} [metrics.py:96] SpecDecoding metrics: "
    if old_order:
        return (
            f"{stamp}Draft acceptance rate: {100 * accepted / drafted:.1f}%, Mean acceptance length: {shown:.2f}, "
            f"Accepted: {accepted} tokens, Drafted: {drafted} tokens, Per-position acceptance rate: {rates}\n"
        )
    return (
        f"(APIServer pid=42) {stamp}Mean acceptance length: {shown:.2f}, Accepted throughput: "
        f"{accepted / interval_s:.2f} tokens/s, "
        f"Drafted throughput: {drafted / interval_s:.2f} tokens/s, Accepted: {accepted} tokens, Drafted: {drafted} tokens, "
        f"Per-position acceptance rate: {rates}, Avg Draft acceptance rate: {100 * accepted / drafted:.1f}%\n"
    )


def vllm_before_v1(depth: int, drafted: int, emitted: int, *, at_s: int = 0, tokens: str = "") -> str:
    """A load line and one about drafts, its counts since the start; the rate counts drafts that no step kept."""
    stamp = f"INFO 03-01 {at_s // 3600:02d}:{at_s // 60 % 60:02d}:{at_s % 60:02d} metrics.py:467] "
    return (
        f"{stamp}Avg prompt throughput: 12.3 tokens/s, Avg generation throughput: 95.4 tokens/s, Running: 1 reqs, Swapped: 0 reqs, "
        f"Pending: 2 reqs, GPU KV cache usage: 0.5%, CPU KV cache usage: 0.0%.\n{stamp}Speculative metrics: Draft acceptance rate: "
        f"0.642, System efficiency: 0.598, Number of speculative tokens: {depth}, Number of accepted tokens: {drafted * 2 // 3}, "
        f"Number of draft tokens{tokens}: {drafted}, Number of emitted tokens{tokens}: {emitted}.\n"
    )


def vllm_load(speed: float, running: int = 8, waiting: int = 0, *, at_s: int = 0, engine: int = 0) -> str:
    return (
        f"(APIServer pid=42) INFO 03-01 {at_s // 3600:02d}:{at_s // 60 % 60:02d}:{at_s % 60:02d} [loggers.py:248] Engine "
        f"{engine:03d}: Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: {speed:.1f} tokens/s, Running: {running} "
        f"reqs, Waiting: {waiting} reqs, GPU KV cache usage: 3.2%, Prefix cache hit rate: 11.0%\n"
    )


def counters(
    drafts: float, drafted: float, accepted: float, positions: Sequence[float] = (), *, engine: str = "0", extra: str = ""
) -> str:
    """vLLM's spec-decode counters as its /metrics shows them."""
    labels = f'engine="{engine}",model_name="target"'
    families = [("num_drafts", drafts), ("num_draft_tokens", drafted), ("num_accepted_tokens", accepted)]
    text = "".join(
        f"# TYPE vllm:spec_decode_{name}_total counter\nvllm:spec_decode_{name}_total{{{labels}}} {value}\n"
        for name, value in families
    )
    for place, count in enumerate(positions):
        text += f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{labels},position="{place}"}} {count}\n'
    return text + extra


Reader = Callable[..., ReadResult]


@pytest.fixture
def read(tmp_path: Path) -> Reader:
    """Reads texts, each a file of its own."""

    def run(
        *texts: str | bytes, told: Told | None = None, names: Sequence[str] = ("a.log", "b.log", "c.log", "d.log")
    ) -> ReadResult:
        paths = []
        for name, text in zip(names, texts, strict=False):
            path = tmp_path / name
            path.write_bytes(text.encode() if isinstance(text, str) else text)
            paths.append(path)
        return read_files(paths, told)

    return run


@pytest.fixture
def read_one(read: Reader) -> Callable[..., Reading]:
    def run(text: str | bytes, told: Told | None = None) -> Reading:
        (reading,) = read(text, told=told).readings
        return reading

    return run


def codes(reading: Reading | ReadResult) -> set[str]:
    return {finding.code for finding in reading.findings}
