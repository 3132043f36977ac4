"""Flags and variables whose name, or whose being there, differs by engine release: one row each, never a branch.

Read from released packages and public pull requests. A purpose without a row is the same in every release that was read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from breakeven.versions import Span, Version, rows_for

__all__ = ["CHECKED", "LAUNCH_FLAGS", "ChosenFlag", "LaunchFlag", "checked_doubt", "choose_flag"]

# Releases whose flags and metrics were read, ends included; what lies outside is tried all the same and marked unverified.
CHECKED = {"vllm": Span.of("0.8.5", "0.33.0"), "sglang": Span.of("0.4.6.post5", "0.5.23")}


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFlag:
    """`name` is the flag, key or variable that serves `purpose` in the releases of `span`; None: they have none."""

    engine: str
    purpose: str
    span: Span
    name: str | None
    source: str
    recorded: str = "2026-11"


LAUNCH_FLAGS: tuple[LaunchFlag, ...] = (
    LaunchFlag(
        engine="vllm",
        purpose="largest batch in a graph",
        span=Span.of(None, "0.11.0"),
        name="--cuda-graph-sizes",
        source="engine/arg_utils.py; counts tokens; one number stands for all sizes up to it",
    ),
    LaunchFlag(
        engine="vllm",
        purpose="largest batch in a graph",
        span=Span.of("0.11.1", None, "0.33.0"),
        name="--max-cudagraph-capture-size",
        source="vllm PR 26016; counts tokens",
    ),
    LaunchFlag(
        engine="vllm",
        purpose="forced acceptance",
        span=Span.of(None, "0.19.1"),
        name=None,
        source="config/speculative.py: no rejection_sample_method synthetic",
    ),
    LaunchFlag(
        engine="vllm",
        purpose="forced acceptance",
        span=Span.of("0.20.0", None, "0.33.0"),
        name="synthetic_acceptance_length",
        source="config/speculative.py",
    ),
    LaunchFlag(
        engine="vllm",
        purpose="drafts by batch size",
        span=Span.of(None, "0.23.0"),
        name=None,
        source="config/speculative.py: no num_speculative_tokens_per_batch_size",
    ),
    LaunchFlag(
        engine="vllm",
        purpose="drafts by batch size",
        span=Span.of("0.24.0", None, "0.32.0"),
        name="num_speculative_tokens_per_batch_size",
        source="config/speculative.py, v1/spec_decode/dynamic/utils.py; the last number is carried on; not with data parallelism",
    ),
    LaunchFlag(
        engine="sglang",
        purpose="drafts by batch size",
        span=Span.of(None, "0.5.12.post1"),
        name=None,
        source="speculative/adaptive_spec_params.py: one list of candidates for all batches, or none",
    ),
    LaunchFlag(
        engine="sglang",
        purpose="drafts by batch size",
        span=Span.of("0.5.13", None, "0.5.23"),
        name="--speculative-adaptive-config",
        source="speculative/adaptive_spec_params.py; slots by batch size, EAGLE chains without attention data parallelism",
    ),
    LaunchFlag(
        engine="vllm",
        purpose="profiler",
        span=Span.of(None, "0.12.0"),
        name="VLLM_TORCH_PROFILER_DIR",
        source="envs.py; read up to 0.15, gone in 0.16 (vllm PR 33536)",
    ),
    LaunchFlag(
        engine="vllm",
        purpose="profiler",
        span=Span.of("0.13.0", None, "0.33.0"),
        name="--profiler-config",
        source="vllm PR 29912, config/profiler.py; JSON with profiler and torch_profiler_dir",
    ),
    LaunchFlag(
        engine="sglang",
        purpose="largest batch in a graph",
        span=Span.of(None, "0.5.13"),
        name="--cuda-graph-max-bs",
        source="server_args.py; counts requests",
    ),
    LaunchFlag(
        engine="sglang",
        purpose="largest batch in a graph",
        span=Span.of("0.5.14", None, "0.5.23"),
        name="--cuda-graph-max-bs-decode",
        source="server_args.py, arg_groups/cuda_graph_hook.py; counts requests",
    ),
    LaunchFlag(
        engine="sglang",
        purpose="drafter's quantization",
        span=Span.of(None, "0.5.5"),
        name=None,
        source="server_args.py: the drafter is quantized as the target is",
    ),
    LaunchFlag(
        engine="sglang",
        purpose="drafter's quantization",
        span=Span.of("0.5.8", None, "0.5.23"),
        name="--speculative-draft-model-quantization",
        source="server_args.py, arg_groups/fields/spec.py; unquant opts out",
    ),
    LaunchFlag(
        engine="sglang",
        purpose="n-gram drafting",
        span=Span.of(None, "0.5.2"),
        name=None,
        source="server_args.py: no NGRAM",
    ),
    LaunchFlag(
        engine="sglang",
        purpose="n-gram drafting",
        span=Span.of("0.5.3", None, "0.5.23"),
        name="NGRAM",
        source="server_args.py",
    ),
    LaunchFlag(
        engine="sglang",
        purpose="longest n-gram",
        span=Span.of("0.5.3", "0.5.8"),
        name="--speculative-ngram-max-match-window-size",
        source="server_args.py",
    ),
    LaunchFlag(
        engine="sglang",
        purpose="longest n-gram",
        span=Span.of("0.5.10", None, "0.5.23"),
        name=None,
        source="server_args.py: a trie of fixed depth in place of the window",
    ),
    LaunchFlag(
        engine="sglang",
        purpose="shortest n-gram",
        span=Span.of("0.5.3", "0.5.8"),
        name="--speculative-ngram-min-match-window-size",
        source="server_args.py",
    ),
    LaunchFlag(
        engine="sglang",
        purpose="shortest n-gram",
        span=Span.of("0.5.10", None, "0.5.23"),
        name=None,
        source="server_args.py",
    ),
    LaunchFlag(
        engine="sglang",
        purpose="forced acceptance",
        span=Span.of(None, "0.5.2"),
        name="SIMULATE_ACC_LEN",
        source="speculative/eagle_utils.py",
    ),
    LaunchFlag(
        engine="sglang",
        purpose="forced acceptance",
        span=Span.of("0.5.3", None, "0.5.23"),
        name="SGLANG_SIMULATE_ACC_LEN",
        source="environ.py",
    ),
    LaunchFlag(
        engine="sglang",
        purpose="forced acceptance, method",
        span=Span.of(None, "0.4.7"),
        name=None,
        source="speculative/eagle_utils.py: rounds a normal deviate, so the mean asked for is missed",
    ),
    LaunchFlag(
        engine="sglang",
        purpose="forced acceptance, method",
        span=Span.of("0.4.9", "0.5.2"),
        name="SIMULATE_ACC_METHOD",
        source="speculative/eagle_utils.py",
    ),
    LaunchFlag(
        engine="sglang",
        purpose="forced acceptance, method",
        span=Span.of("0.5.3", None, "0.5.23"),
        name="SGLANG_SIMULATE_ACC_METHOD",
        source="environ.py; match-expected is the default from 0.5.11 only",
    ),
    LaunchFlag(
        engine="sglang",
        purpose="forced acceptance, tokens",
        span=Span.of(None, "0.5.14"),
        name=None,
        source="every accepted token is the same id",
    ),
    LaunchFlag(
        engine="sglang",
        purpose="forced acceptance, tokens",
        span=Span.of("0.5.15", None, "0.5.23"),
        name="SGLANG_SIMULATE_ACC_TOKEN_MODE",
        source="environ.py; real-draft-token keeps the routing of experts true",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenFlag:
    """`name` None: the release has no such thing. `doubt`: why the choice is uncertain, empty where it is not."""

    name: str | None
    doubt: str = ""


def choose_flag(engine: str, purpose: str, version: Version | None) -> ChosenFlag:
    """The flag for a release; where several rows may hold, the newest of them, with the doubt."""
    rows = [row for row in LAUNCH_FLAGS if (row.engine, row.purpose) == (engine, purpose)]
    applicable = rows_for(rows, version)
    if not applicable.rows:
        raise KeyError(f"no row for {engine}, {purpose}")
    settled = len({row.name for row in applicable.rows}) == 1 and version is not None
    doubt = "" if settled and "unverified" not in applicable.doubt else f"{purpose}: {applicable.doubt}" if applicable.doubt else ""
    return ChosenFlag(name=applicable.rows[-1].name, doubt=doubt)


def checked_doubt(engine: str, version: Version | None, doubts: Iterable[str] = ()) -> str:
    """What of a command line is uncertain for this release, as one text; empty where all of it was read."""
    span = CHECKED[engine]
    if version is None:
        general = f"the release of {engine} is not known: flags of the newest one are used (set engine_version)"
    elif version not in span:
        general = f"{engine} {version} was never checked ({span} were): unverified"
    else:
        return "; ".join(doubt for doubt in doubts if doubt)
    return general
