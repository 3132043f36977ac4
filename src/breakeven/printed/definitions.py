"""Who prints what in which releases: one row for each engine, place and span. `docs/acceptance.md` shows this table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from breakeven.printed.formulas import DraftShape, LengthFormula, RateFormula
from breakeven.versions import Applicable, Span, Version, rows_for

__all__ = [
    "DEFINITIONS",
    "DEFINITIONS_IN_THE_WILD",
    "METHODS_THAT_SKIP_STEPS",
    "Definition",
    "Surface",
    "definitions_for",
    "draft_shape",
    "known_engines",
    "rate_has_changed",
]

Surface = Literal["log", "per request", "benchmark"]

# Methods that propose nothing, or fewer drafts than allowed, where the text offers no match.
METHODS_THAT_SKIP_STEPS = frozenset({"ngram", "ngram_gpu", "suffix", "prompt_lookup"})

_INCLUDED, _EXCLUDED = LengthFormula.BONUS_INCLUDED, LengthFormula.BONUS_EXCLUDED
_STRICT = RateFormula.ACCEPTED_OVER_DRAFTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One engine's meaning of its two words in one place.

    surface: "log" (log line, gauges, counters: they agree), "per request" (fields of a reply), "benchmark" (the engine's own tool).
    rate: None where no rate is printed there.
    per: what the length is divided by: every decode "step", or only each "round", a step that carried drafts.
    presumed: False for releases so old that they are left out of guesses unless the release or the figures call for them.
    rate_is_bound: these releases may also print a rate that counts drafts no step kept, so by itself it only bounds the length.
    recorded: the month the row was checked against the released source.
    """

    engine: str
    surface: Surface
    span: Span
    length: LengthFormula = _INCLUDED
    rate: RateFormula | None
    per: Literal["step", "round"] = "step"
    presumed: bool = True
    rate_is_bound: bool = False
    note: str = ""
    source: str
    recorded: str = "2026-11"

    @property
    def releases(self) -> str:
        return f"{self.engine} {self.span}"


DEFINITIONS: tuple[Definition, ...] = (
    Definition(
        engine="sglang",
        surface="log",
        span=Span.of(None, "0.5.3"),
        rate=None,
        source="managers/scheduler_metrics_mixin.py",
    ),
    Definition(
        engine="sglang",
        surface="log",
        span=Span.of("0.5.3.post3", "0.5.5"),
        rate=RateFormula.LENGTH_OVER_STEPS_PLUS_ONE,
        note="with a tree it could exceed 1 in the first of these",
        source="managers/scheduler_metrics_mixin.py, PR 11572",
    ),
    Definition(
        engine="sglang",
        surface="log",
        span=Span.of("0.5.6", "0.5.10.post1"),
        rate=RateFormula.LENGTH_OVER_SLOTS,
        note="with a tree the slots are all its nodes",
        source="managers/scheduler_metrics_mixin.py; observability/ in 0.5.10",
    ),
    Definition(
        engine="sglang",
        surface="log",
        span=Span.of("0.5.11", None, "0.5.23"),
        rate=_STRICT,
        note="with a tree the drafts are all its nodes but the root",
        source="PR 23530 (2026-04-23); managers/scheduler_components/metrics_reporter.py",
    ),
    Definition(
        engine="sglang",
        surface="per request",
        span=Span.of("0.5.5", "0.5.5"),
        rate=RateFormula.ACCEPTED_OVER_STEPS,
        note="length counts the prefill's token and the cut at the end of a reply: short replies read too high",
        source="managers/tokenizer_manager.py",
    ),
    Definition(
        engine="sglang",
        surface="per request",
        span=Span.of("0.5.6", None, "0.5.23"),
        rate=_STRICT,
        note="length counts the prefill's token and the cut at the end of a reply: short replies read too high",
        source="managers/tokenizer_manager.py",
    ),
    Definition(
        engine="sglang",
        surface="benchmark",
        span=Span.of(None, None, "0.5.23"),
        rate=None,
        note="avg_spec_accept_length of /server_info: since the server started or was flushed",
        source="internal_state.py",
    ),
    Definition(
        engine="vllm",
        surface="log",
        span=Span.of(None, "0.8.5.post2"),
        length=_EXCLUDED,
        rate=_STRICT,
        per="round",
        presumed=False,
        rate_is_bound=True,
        note="before V1: no length, and a rate that also counts drafts that were right after a wrong one, so at most this",
        source="v1/spec_decode/metrics.py before PR 17908 (2025-05)",
    ),
    Definition(
        engine="vllm",
        surface="log",
        span=Span.of("0.9.2", None, "0.33.0"),
        rate=_STRICT,
        per="round",
        note="rate in percent; per-position rates are joint",
        source="v1/spec_decode/metrics.py, PR 17908 (2025-05)",
    ),
    Definition(
        engine="tensorrt-llm",
        surface="log",
        span=Span.of(None, None),
        rate=_STRICT,
        note="PyExecutor: (accepted + requests) / requests of an iteration",
        source="specdec_stats",
    ),
    Definition(
        engine="llama.cpp",
        surface="log",
        span=Span.of(None, None),
        rate=_STRICT,
        note="per-position rates are joint",
        source="PR 24536",
    ),
)


def _of_no_engine(rate: RateFormula, length: LengthFormula = _INCLUDED, *, presumed: bool = True) -> Definition:
    where = "papers, dashboards and spreadsheets"
    return Definition(
        engine="another", surface="log", span=Span.of(None, None), length=length, rate=rate, presumed=presumed, source=where
    )


# What a figure may mean where the engine is not in the table.
DEFINITIONS_IN_THE_WILD: tuple[Definition, ...] = (
    _of_no_engine(_STRICT),
    _of_no_engine(RateFormula.LENGTH_OVER_SLOTS),
    _of_no_engine(RateFormula.SHARE_OF_OUTPUT),
    _of_no_engine(RateFormula.CHAIN_ALPHA),
    _of_no_engine(_STRICT, _EXCLUDED, presumed=False),
)

# Engines whose "number of draft tokens" flag counts the root of the tree as one of them.
_COUNTS_THE_ROOT = frozenset({"sglang"})
_LEAVES_THE_ROOT_OUT = frozenset({"vllm", "tensorrt-llm", "llama.cpp"})


def known_engines() -> tuple[str, ...]:
    return tuple(dict.fromkeys(row.engine for row in DEFINITIONS))


def definitions_for(engine: str, surface: Surface = "log", version: Version | None = None) -> Applicable[Definition]:
    """The rows that may hold; those met in the wild for an engine that is not in the table."""
    if engine not in known_engines():
        return Applicable(DEFINITIONS_IN_THE_WILD, f"what {engine or 'this engine'} prints is not on record")
    of_engine = tuple(row for row in DEFINITIONS if row.engine == engine)
    rows = tuple(row for row in of_engine if row.surface == surface)
    if not rows:
        log = rows_for((row for row in of_engine if row.surface == "log"), version)
        return Applicable(log.rows, f"what {engine} prints there ({surface}) is not on record; read as its log")
    return rows_for(rows, version)


def rate_has_changed(engine: str) -> bool:
    """Whether what `engine` prints as a rate depends on its release."""
    return len({row.rate for row in DEFINITIONS if row.engine == engine and row.surface == "log" and row.rate is not None}) > 1


def draft_shape(engine: str, *, steps: int | None, topk: int | None, draft_tokens: int | None) -> DraftShape:
    """What a round proposes, from the engine's own flags.

    `draft_tokens` is SGLang's `--speculative-num-draft-tokens` (the root is one of them) or vLLM's `num_speculative_tokens` (it is
    not). Where `steps` is given too and topk is 1, or the engine only drafts chains, the steps decide, as they do in the engines.
    """
    is_chain = None if topk is None else topk == 1
    if engine in _LEAVES_THE_ROOT_OUT:
        num_drafted = draft_tokens if steps is None or is_chain is False else steps
        return DraftShape(
            num_drafted=num_drafted, num_steps=num_drafted if steps is None else steps, is_chain=is_chain is not False
        )
    if is_chain and steps is not None:
        return DraftShape(num_drafted=steps, num_steps=steps, is_chain=True)
    if engine in _COUNTS_THE_ROOT and draft_tokens is not None:
        if is_chain is None and steps is not None and steps + 1 == draft_tokens:
            is_chain = True
        return DraftShape(num_drafted=draft_tokens - 1, num_steps=draft_tokens - 1 if is_chain else steps, is_chain=is_chain)
    if is_chain is None and steps is not None and draft_tokens in {steps, steps + 1}:
        return DraftShape(num_drafted=steps, num_steps=steps)
    return DraftShape(num_steps=steps, is_chain=is_chain)
