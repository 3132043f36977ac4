"""Serving facts that differ by engine release, one row each: default admission, how to force acceptance, first support of a target.

Read from released packages and public pull requests; `recorded` is the month. Look a row up with `versions.rows_for`.
"""

from __future__ import annotations

from dataclasses import dataclass

from breakeven.versions import Span, Version, rows_for

__all__ = [
    "ADMISSION",
    "FIRST_SUPPORT",
    "FORCED_ACCEPTANCE",
    "AdmissionDefault",
    "FirstSupport",
    "ForcedAcceptance",
    "admission_defaults",
    "admission_flag",
    "first_support",
    "forced_acceptance",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionDefault:
    """How many requests run at once when `flag` is not given. None: as many as memory holds, the same with and without drafts."""

    engine: str
    span: Span
    flag: str
    speculative_cap: int | None
    presumed: bool = True  # False: releases so old that they are left out of guesses
    source: str
    recorded: str = "2026-11"


ADMISSION: tuple[AdmissionDefault, ...] = (
    AdmissionDefault(
        engine="sglang",
        span=Span.of(None, "0.4.4"),
        flag="--max-running-requests",
        speculative_cap=32,
        presumed=False,
        source="server_args.py of 0.4.4; sglang issue 4286",
    ),
    AdmissionDefault(
        engine="sglang",
        span=Span.of("0.4.6.post5", None, "0.5.23"),
        flag="--max-running-requests",
        speculative_cap=48,
        source="server_args.py, from 0.5.15 arg_groups/speculative_hook.py; warns in the log",
    ),
    AdmissionDefault(
        engine="vllm", span=Span.of(None, None, "0.33.0"), flag="--max-num-seqs", speculative_cap=None, source="engine/arg_utils.py"
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForcedAcceptance:
    """How an engine is told to accept drafts to order, so that the cost of a round can be measured without a good drafter."""

    engine: str
    span: Span
    how: str
    source: str
    recorded: str = "2026-11"


FORCED_ACCEPTANCE: tuple[ForcedAcceptance, ...] = (
    ForcedAcceptance(
        engine="vllm",
        span=Span.of("0.20.0", None, "0.33.0"),
        how="rejection_sample_method: synthetic with synthetic_acceptance_length in --speculative-config",
        source="config/speculative.py",
    ),
    ForcedAcceptance(
        engine="sglang",
        span=Span.of(None, "0.4.7"),
        how="SIMULATE_ACC_LEN in the environment, whose mean is missed: a normal deviate is rounded",
        source="speculative/eagle_utils.py; 0.4.7 has SIMULATE_ACC_METHOD, without match-expected",
    ),
    ForcedAcceptance(
        engine="sglang",
        span=Span.of("0.4.9", "0.5.2"),
        how="SIMULATE_ACC_LEN with SIMULATE_ACC_METHOD=match-expected in the environment",
        source="speculative/eagle_utils.py",
    ),
    ForcedAcceptance(
        engine="sglang",
        span=Span.of("0.5.3", "0.5.10.post1"),
        how="SGLANG_SIMULATE_ACC_LEN with SGLANG_SIMULATE_ACC_METHOD=match-expected in the environment",
        source="environ.py; the method defaults to multinomial, which misses the mean",
    ),
    ForcedAcceptance(
        engine="sglang",
        span=Span.of("0.5.11", None, "0.5.23"),
        how="SGLANG_SIMULATE_ACC_LEN in the environment, with SGLANG_SIMULATE_ACC_TOKEN_MODE=real-draft-token from 0.5.15",
        source="environ.py; the method defaults to match-expected",
    ),
    ForcedAcceptance(
        engine="tensorrt-llm",
        span=Span.of(None, None),
        how="TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS, the accept length less 1, in the environment",
        source="environment of the runtime",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstSupport:
    """The first release in which `engine` speculates with `method` for targets of `model_type` without patches."""

    engine: str
    model_type: str
    method: str
    first: Version
    source: str
    recorded: str = "2026-11"


FIRST_SUPPORT: tuple[FirstSupport, ...] = (
    FirstSupport(
        engine="sglang",
        model_type="kimi_k25",
        method="eagle3",
        first=Version.parse("0.5.10"),
        source="sglang PR 19689, models/kimi_k25.py",
    ),
    FirstSupport(
        engine="vllm",
        model_type="kimi_k25",
        method="eagle3",
        first=Version.parse("0.20.2"),
        source="models/kimi_k25.py (absent in 0.17.1)",
    ),
    FirstSupport(
        engine="vllm",
        model_type="deepseek_v3",
        method="eagle3",
        first=Version.parse("0.20.2"),
        source="models/deepseek_v2.py (absent in 0.17.1)",
    ),
)


def admission_defaults(engine: str, version: Version | None) -> tuple[AdmissionDefault, ...]:
    """The rows that may hold; without a release, those not too old to be likely."""
    rows = tuple(row for row in ADMISSION if row.engine == engine and (version is not None or row.presumed))
    return rows_for(rows, version).rows


def admission_flag(engine: str) -> str:
    """The flag that bounds how many requests run at once, or plain words for an engine without a row."""
    return next((row.flag for row in ADMISSION if row.engine == engine), "limit on running requests")


def forced_acceptance(engine: str, version: Version | None) -> ForcedAcceptance | None:
    rows = rows_for((row for row in FORCED_ACCEPTANCE if row.engine == engine), version).rows
    return rows[-1] if rows else None


def first_support(engine: str, model_type: str | None, method: str) -> FirstSupport | None:
    rows = (row for row in FIRST_SUPPORT if (row.engine, row.model_type, row.method) == (engine, model_type, method))
    return next(rows, None)
