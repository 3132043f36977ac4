"""Readings of metrics dumps: vLLM's counters exactly, SGLang's gauges as what they are, the last interval only."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from breakeven.acceptance import Acceptance
from breakeven.findings import Finding, worst_first
from breakeven.printed.definitions import draft_shape
from breakeven.printed.figures import PrintedFigure
from breakeven.printed.formulas import DraftShape
from breakeven.printed.reading import Candidate, read_printed
from breakeven.printed.reading import Reading as PrintedReading
from breakeven.readers.dumps import Window
from breakeven.readers.effects import Level
from breakeven.readers.figures import as_printed, known
from breakeven.readers.findings.curve import ceiling, dead_positions, floor
from breakeven.readers.findings.ranks import odd_rank
from breakeven.readers.reading import AcceptanceFound, FormulaReading, Reading
from breakeven.readers.speedup import SHARE_CALLED_FLATTERED, with_speedup
from breakeven.versions import Version

__all__ = ["window_reading"]

# Below this share of the drafts that all positions would make, some rounds drafted fewer.
FULL_DRAFTS = 0.95
MIN_ROUNDS_OF_A_RANK = 100
_PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos"


def window_reading(
    window: Window, source: str, version: Version | None, draft_tokens: int | None, *, break_even: float | None = None
) -> Reading:
    """`version` and `draft_tokens` are what the user says, for gauges whose meaning depends on them."""
    findings = list(_window_findings(window))
    if window.engine == "sglang":
        acceptance, more = _sglang(window, version, draft_tokens)
    else:
        acceptance, more = _vllm(window)
    acceptance, on_speed = with_speedup(acceptance, break_even)
    findings += [*more, *on_speed]
    generated = window.total(f"{window.engine}:generation_tokens")
    running, queued = (
        (f"{window.engine}:num_requests_running", f"{window.engine}:num_requests_waiting")
        if window.engine != "sglang"
        else ("sglang:num_running_reqs", "sglang:num_queue_reqs")
    )
    gauges = window.gauge("sglang:gen_throughput")
    throughput = generated / window.duration_s if window.duration_s > 0 else sum(gauges) if gauges else math.nan
    return Reading(
        source=source,
        kind="two scrapes" if window.is_difference else "scrape",
        engine="local" if "breakeven:decode_steps" in window.counters else window.engine,
        version=str(version) if version else None,
        num_lines=0,
        duration_s=known(window.duration_s),
        num_engines=max(1, len({labels for samples in window.counters.values() for labels in _engines(samples)})),
        acceptance=acceptance,
        throughput=known(throughput),
        running=known(_sum(window.gauge(running))),
        queued=known(_sum(window.gauge(queued))),
        findings=worst_first(findings),
    )


def _sum(values: Sequence[float]) -> float:
    return sum(values) if values else math.nan


def _engines(samples: object) -> Iterator[str]:
    for labels in samples:  # type: ignore[attr-defined]
        yield dict(labels).get("engine", "")


def _vllm(window: Window) -> tuple[AcceptanceFound | None, list[Finding]]:
    drafts = window.total("vllm:spec_decode_num_drafts")
    drafted = window.total("vllm:spec_decode_num_draft_tokens")
    accepted = window.total("vllm:spec_decode_num_accepted_tokens")
    if not (math.isfinite(drafted) and math.isfinite(accepted)):
        return None, []
    if not math.isfinite(drafts):
        drafts = 0.0
    per_position: dict[int, float] = {}
    for labels, count in window.counters.get(_PER_POSITION, {}).items():
        position = dict(labels).get("position", "")
        if position.isascii() and position.isdigit() and len(position) < 4:
            per_position[int(position)] = per_position.get(int(position), 0.0) + count
    positions = [per_position.get(place, 0.0) for place in range(max(per_position) + 1)] if per_position else []
    steps = window.total("breakeven:decode_steps")
    if not math.isfinite(steps):
        tokens = window.total("vllm:generation_tokens") - window.total("vllm:time_to_first_token_seconds_count") - accepted
        steps = max(drafts, tokens) if math.isfinite(tokens) and tokens > 0 else drafts
    counts = Acceptance(
        num_steps=round(steps),
        num_rounds=round(drafts),
        num_drafted=round(drafted),
        num_accepted=round(accepted),
        accepted_per_position=tuple(round(count) for count in positions),
        exact_steps=False,
    )
    findings = list(_contradictions(counts))
    if counts.num_accepted > counts.num_drafted or counts.num_drafted < counts.num_rounds:
        # nothing can be worked out of counts that no engine can have had
        return AcceptanceFound(
            rounds=drafts, drafted=drafted, accepted=accepted, basis="counters", formula_status="contradictory"
        ), findings
    per_round = counts.num_drafted / counts.num_rounds if counts.num_rounds else math.nan
    whole = round(per_round) if math.isfinite(per_round) and abs(per_round - round(per_round)) < 0.02 else None
    # counters of several positions are one draft's: the longest of them is the number of drafts asked for
    num_drafted = len(positions) or whole
    joint = counts.joint
    if counts.num_rounds:
        # where rounds drafted fewer, as by batch, a position may be empty because it was seldom drafted
        if counts.num_drafted >= FULL_DRAFTS * len(positions) * counts.num_rounds:
            findings += dead_positions(joint, counts.num_rounds, "per-position counters over drafts")
        if (found := floor(counts.per_round_length, counts.num_rounds, "from counters")) is not None:
            findings.append(found)
        elif num_drafted and (
            at_ceiling := ceiling(counts.per_round_length, num_drafted, counts.per_round_length, "from counters")
        ):
            findings.append(at_ceiling)
    if counts.num_rounds and counts.drafted_share < SHARE_CALLED_FLATTERED:
        findings.append(_undrafted(counts))
    if (odd := odd_rank(_by_engine(window))) is not None:
        findings.append(odd)
    error = math.sqrt(max(counts.draft_acceptance * (1 - counts.draft_acceptance), 0.0)) * (num_drafted or 1)
    return AcceptanceFound(
        accept_length=known(counts.per_round_length),
        uncertainty=known(2 * error / math.sqrt(counts.num_rounds)) if counts.num_rounds else None,
        per_step=known(counts.accept_length),
        draft_acceptance=known(counts.draft_acceptance),
        num_drafted=num_drafted,
        joint=joint,
        conditional=tuple(known(rate) for rate in counts.conditional),
        drafted_share=known(counts.drafted_share),
        rounds=drafts,
        drafted=drafted,
        accepted=accepted,
        basis="counters",
        as_printed=as_printed(counts.per_round_length, num_drafted),
        formula_status="not needed",
    ), findings


def _by_engine(window: Window) -> dict[str, Level]:
    """Accept length of every engine that counted enough drafts, with its counting error."""
    counts: dict[str, dict[str, float]] = {}
    for name in ("num_drafts", "num_draft_tokens", "num_accepted_tokens"):
        for labels, count in window.counters.get(f"vllm:spec_decode_{name}", {}).items():
            own = counts.setdefault(dict(labels).get("engine", ""), {})
            own[name] = own.get(name, 0.0) + count
    found = {}
    for engine, of in counts.items():
        rounds, drafted, accepted = (of.get(name, 0.0) for name in ("num_drafts", "num_draft_tokens", "num_accepted_tokens"))
        if rounds >= MIN_ROUNDS_OF_A_RANK and drafted > 0:
            rate = min(accepted / drafted, 1.0)
            error = math.sqrt(rate * (1.0 - rate)) * (drafted / rounds) / math.sqrt(rounds)
            found[engine] = Level(mean=1.0 + accepted / rounds, error=error, rounds=rounds, num_lines=1)
    return found


def _undrafted(counts: Acceptance) -> Finding:
    return Finding(
        code="steps-without-drafts",
        severity="warning",
        confidence="medium",
        title=f"About {counts.drafted_share * 100:.0f} % of decode steps carried drafts: length "
        f"{counts.per_round_length:.2f} divides "
        f"by those only, over all steps it is {counts.accept_length:.2f}.",
        evidence=(f"{counts.num_rounds} drafts, about {counts.num_steps} decode steps (tokens generated less accepted ones)",),
        remedy="Judge speed by the length over all steps.",
    )


def _contradictions(counts: Acceptance) -> Iterator[Finding]:
    told = []
    if counts.num_accepted > counts.num_drafted:
        told.append(f"{counts.num_accepted} accepted of {counts.num_drafted} drafted tokens")
    if counts.num_drafted < counts.num_rounds:
        told.append(f"{counts.num_rounds} drafts with {counts.num_drafted} tokens in all: less than one each")
    positions = counts.accepted_per_position
    if positions:
        if sum(positions) != counts.num_accepted and abs(sum(positions) - counts.num_accepted) > 0.005 * counts.num_accepted:
            told.append(f"per-position counts sum to {sum(positions)}, accepted tokens are {counts.num_accepted}")
        if any(later > earlier for earlier, later in itertools.pairwise(positions)):
            told.append("a later position was accepted more often than an earlier one")
        if counts.num_rounds and counts.num_drafted > len(positions) * counts.num_rounds * 1.005:
            told.append(f"{counts.num_drafted} drafted tokens in {counts.num_rounds} drafts of at most {len(positions)}")
        if counts.num_rounds and positions[0] > counts.num_rounds:
            told.append(f"position 0 was accepted {positions[0]} times in {counts.num_rounds} drafts")
    if told:
        yield Finding(
            code="counters-contradict",
            severity="error",
            confidence="high",
            title="The counters contradict each other.",
            evidence=tuple(told),
            remedy="Check that both scrapes come from the same server, whole, and that no proxy sums or drops series.",
        )


def _sglang(window: Window, version: Version | None, draft_tokens: int | None) -> tuple[AcceptanceFound | None, list[Finding]]:
    lengths = [value for value in window.gauge("sglang:spec_accept_length") if value > 0]
    rates = [value for value in window.gauge("sglang:spec_accept_rate") if value > 0]
    tokens = draft_tokens or int(max(window.gauge("sglang:spec_num_draft_tokens"), default=0)) or None
    steps = int(max(window.gauge("sglang:spec_num_steps"), default=0)) or None
    if not lengths and not rates:
        return None, []
    shape = draft_shape("sglang", steps=steps, topk=1 if steps and tokens == steps + 1 else None, draft_tokens=tokens)
    reading = read_printed(
        engine="sglang",
        shape=shape,
        length=_gauge(lengths),
        rate=_gauge(rates),
        version=version,
    )
    findings = []
    if reading.status == "ambiguous":
        findings.append(
            Finding(
                code="rate-ambiguous",
                severity="warning",
                confidence="high",
                title="The accept rate has several possible meanings here; none is assumed.",
                evidence=_alternatives(reading, rates),
                remedy="Any of these settles it: the release (--engine-version), the number of draft tokens "
                "(--draft-tokens) where it "
                "is not in the dump, or the gauge sglang:spec_accept_length beside the rate.",
            )
        )
    elif reading.status == "contradictory":
        findings.append(
            Finding(
                code="rate-contradicts-length",
                severity="warning",
                confidence="medium",
                title="Accept length and rate do not belong together.",
                evidence=(reading.doubt,),
                remedy="Gauges of several engines were averaged, or scraped between two updates: scrape again.",
            )
        )
    length = reading.accept_length.estimate if reading.accept_length is not None else math.nan
    if math.isfinite(length) and (found := floor(length, 1000.0, "gauge of the last interval")) is not None:
        findings.append(found)
    by_rank = {str(rank): Level(mean=value, error=0.0, rounds=1.0, num_lines=1) for rank, value in enumerate(lengths)}
    if (odd := odd_rank(by_rank)) is not None:
        findings.append(odd)
    verified = window.total("sglang:spec_verify_calls")
    basis_is_counters = window.is_difference and verified > 0
    if basis_is_counters:
        emitted = window.total("sglang:generation_tokens") - max(window.total("sglang:num_requests"), 0.0)
        if math.isfinite(emitted) and emitted >= verified:
            length = emitted / verified
    drafts = reading.shape.num_drafted if reading.shape else None
    return (
        AcceptanceFound(
            accept_length=known(length),
            mean_of_lines=known(sum(lengths) / len(lengths)) if lengths else None,
            draft_acceptance=known((length - 1.0) / drafts) if drafts and reading.status == "settled" else None,
            num_drafted=drafts,
            rounds=known(verified),
            basis="counters" if basis_is_counters else "gauges: the last interval only",
            formula_status={"settled": "release" if version else "inferred", "nothing printed": "not printed"}.get(
                reading.status, reading.status
            ),
            formulas=tuple(_formula(candidate) for candidate in reading.candidates[:12]),
        ),
        findings,
    )


def _alternatives(reading: PrintedReading, rates: list[float]) -> tuple[str, ...]:
    """All meanings; where the number of drafts is not known either, for three drafts a round, as an example."""
    if reading.candidates:
        return tuple(_candidate_text(candidate) for candidate in reading.candidates[:6])
    example = read_printed(
        engine="sglang", shape=DraftShape(num_drafted=3, num_steps=3, is_chain=True), length=None, rate=_gauge(rates)
    )
    return tuple(f"with 4 draft tokens, for example: {_candidate_text(candidate)}" for candidate in example.candidates)


def _gauge(values: list[float]) -> PrintedFigure | None:
    """A gauge is exact for one engine; a mean over several fits no formula exactly, so it is taken as rounded."""
    return PrintedFigure(sum(values) / len(values), 0.005) if values else None


def _candidate_text(candidate: Candidate) -> str:
    rate = candidate.definition.rate
    acceptance = candidate.draft_acceptance
    return (
        f"{rate.value if rate else 'no rate'} ({candidate.definition.releases}): accept length "
        f"{candidate.accept_length.estimate:.2f}"
        + (f", draft acceptance {acceptance * 100:.0f} %" if acceptance is not None else "")
    )


def _formula(candidate: Candidate) -> FormulaReading:
    return FormulaReading(
        formula=candidate.definition.rate.value if candidate.definition.rate else "no rate",
        releases=candidate.definition.releases,
        num_drafted=candidate.shape.num_drafted,
        accept_length=known(candidate.accept_length.estimate),
        draft_acceptance=candidate.draft_acceptance,
    )


def _window_findings(window: Window) -> Iterator[Finding]:
    if window.restarted:
        yield Finding(
            code="counters-restarted",
            severity="warning",
            confidence="high",
            title="Counters began again between the scrapes: what was counted before the restart is lost.",
            evidence=(f"restarted: {'; '.join(window.restarted[:8])}",),
            remedy="The figures are those since the restart, for these engines. If the scrapes were given in the wrong "
            "order, give the "
            "older one first.",
        )
    if window.vanished:
        yield Finding(
            code="engine-vanished",
            severity="warning",
            confidence="high",
            title="An engine of the first scrape is missing from the second: what it did is left out.",
            evidence=(f"missing: {'; '.join(window.vanished[:8])}",),
            remedy="Scrape again; see whether it died.",
        )
    if window.odd:
        yield Finding(
            code="counters-contradict",
            severity="error",
            confidence="high",
            title="Some counters hold what no counter can hold.",
            evidence=window.odd[:8],
            remedy="They are left out. Check the dump.",
        )
    if not window.is_difference and window.engine != "sglang":
        yield Finding(
            code="since-start",
            severity="info",
            confidence="high",
            title="One scrape: the figures are since the start of the server, warm-up and all traffic included.",
            remedy="Scrape twice and give both files: the difference is what happened between them.",
        )
