"""What the printed figures themselves leave open or contradict: formula, release, counters that do not agree."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from breakeven.findings import Finding
from breakeven.printed.definitions import definitions_for
from breakeven.readers.formula import Meaning
from breakeven.readers.speedup import SHARE_CALLED_FLATTERED
from breakeven.readers.study import Study

__all__ = ["ambiguous_formula", "meaning_text", "printed"]

# Of all lines, so many may be odd before something is wrong with more than a line.
ODD_SHARE = 0.02


def printed(one: Study) -> Iterator[Finding]:
    section, formula = one.section, one.formula
    if formula.status == "ambiguous":
        yield ambiguous_formula(section.engine, one.overall.mean, formula.meanings, is_release_known=section.version is not None)
    if one.settled_by_company:
        yield Finding(
            code="rate-settled-by-other-logs",
            severity="info",
            confidence="medium",
            title="These lines alone leave the meaning of the printed rate open; it is read as in the other logs given.",
            evidence=tuple(meaning_text(meaning, one.overall.mean) for meaning in formula.meanings),
            remedy="If the logs come from different releases, read them one by one.",
        )
    if formula.status == "contradictory":
        yield _contradiction(one)
    if section.version is not None:
        doubt = definitions_for(section.engine, "log", section.version).doubt
        if doubt and one.overall.num_lines:
            yield Finding(
                code="release-unverified",
                severity="info",
                confidence="high",
                title=f"{section.engine} {section.version}: {doubt}.",
                evidence=(section.version_line.strip()[:200],),
                remedy="Check one line by hand: with k drafts a round, (length - 1) / k should be the printed rate.",
            )
    if not one.overall.num_lines and section.engine == "vllm" and float(np.nansum(one.columns["drafted"])) > 0:
        yield Finding(
            code="number-of-drafts-unknown",
            severity="warning",
            confidence="high",
            title="These lines count drafted and accepted tokens, and not the rounds: without them there is no accept length.",
            evidence=("no mean acceptance length and no per-position rates on them",),
            remedy="Give --draft-tokens K (num_speculative_tokens): the length is 1 + K x acceptance if every draft was K long.",
        )
    if section.position_lines["counts since the start"] and one.overall.num_lines:
        yield Finding(
            code="rate-counts-unkept-drafts",
            severity="info",
            confidence="high",
            title="The acceptance that these lines print is higher than what steps kept; their counts are read instead.",
            evidence=("the engine before V1 also counts drafts that were right after a wrong one, which no step keeps",),
            remedy="Compare accept lengths: emitted tokens by rounds, with rounds = draft tokens / number of speculative tokens.",
        )
    yield from _positions(one)
    yield from _counts(one)
    if section.num_malformed:
        share = section.num_malformed / (section.num_malformed + one.num_lines)
        if section.num_malformed > 3 and share > ODD_SHARE:
            yield Finding(
                code="lines-not-understood",
                severity="warning",
                confidence="high",
                title=f"{section.num_malformed} lines look like {section.engine}'s and could not be read; they are left out.",
                evidence=(f"{share * 100:.0f} % of such lines",),
                remedy="If they come from a release that prints another form, report one of them with its version.",
            )


def meaning_text(meaning: Meaning, accept_length: float) -> str:
    drafts = meaning.shape.num_drafted
    acceptance = (
        f", draft acceptance {(accept_length - 1.0) / drafts * 100:.0f} %" if drafts and math.isfinite(accept_length) else ""
    )
    return f"{meaning.formula.value} with {drafts} drafts a round ({meaning.definition.releases}){acceptance}"


def ambiguous_formula(engine: str, accept_length: float, meanings: tuple[Meaning, ...], *, is_release_known: bool) -> Finding:
    """Several readings of the printed rate fit: all of them are given and none is taken."""
    num_shapes = len({meaning.shape.num_drafted for meaning in meanings})
    asked = []
    if not is_release_known:
        asked.append(f"the release of {engine}")
    if num_shapes > 1:
        flag = "--speculative-num-draft-tokens" if engine == "sglang" else "num_speculative_tokens"
        asked.append(f"the number of draft tokens ({flag})")
    length = f"{accept_length:.2f} " if math.isfinite(accept_length) else ""
    return Finding(
        code="rate-ambiguous",
        severity="warning",
        confidence="high",
        title=f"The printed accept rate has {len(meanings)} possible meanings here; none is assumed. The accept length "
        f"{length}stands either way.",
        evidence=tuple(meaning_text(meaning, accept_length) for meaning in meanings[:6]),
        remedy=f"Any of these settles it: {' or '.join(asked)}, given as --engine-version or --draft-tokens, or a log "
        f"that includes "
        "the server's start; lines with another accept length do too.",
    )


def _contradiction(one: Study) -> Finding:
    section, formula = one.section, one.formula
    expected = ", ".join(f"{row.rate.value} ({row.releases})" for row in formula.expected if row.rate) or "no rate"
    fits = [meaning_text(meaning, one.overall.mean) for meaning in formula.meanings[:4]]
    adaptive = section.settings.get("speculative_adaptive") == "True"
    who = f"{section.engine} {section.version}" if section.version else f"any release of {section.engine}"
    return Finding(
        code="rate-contradicts-release" if section.version else "rate-contradicts-length",
        severity="info" if adaptive else "warning",
        confidence="high",
        title="The number of drafts changes while serving, so no one formula relates rate and length."
        if adaptive
        else f"The printed lengths and rates are not what {who} prints with one number of drafts.",
        evidence=(f"expected: {expected}", *(f"it fits {text}" for text in fits)),
        remedy="Use the accept length; compare rates only between lines of one depth."
        if adaptive
        else "Check that the banner belongs to these lines, and the number of draft tokens. The accept length is used, "
        "the rate is not.",
    )


def _positions(one: Study) -> Iterator[Finding]:
    """Per-position rates against the length printed beside them: length - 1 is their sum."""
    seen = one.section.position_lines
    lines = seen["lines"]
    if not lines:
        return
    limit = max(0, int(ODD_SHARE * lines))
    if one.section.engine == "vllm" and lines - max(seen["bonus in length"], seen["no bonus in length"]) > limit:
        yield _contradict(
            "length and per-position rates",
            f"on {lines - max(seen['bonus in length'], seen['no bonus in length'])} of {lines} lines the length less 1 "
            f"is not the sum "
            "of the per-position rates",
        )
    if seen["rising"] > limit:
        yield _contradict(
            "per-position rates",
            f"on {seen['rising']} of {lines} lines a later position is accepted more often than the one before it",
        )
    if seen["more accepted than drafted"] > 0:
        yield _contradict(
            "accepted and drafted", f"{seen['more accepted than drafted']} lines have more accepted than drafted tokens"
        )
    if seen["more drafts than positions"] > limit:
        yield _contradict(
            "drafted tokens and positions",
            f"on {seen['more drafts than positions']} of {lines} lines more drafts a round than there are positions",
        )
    version = one.section.version
    if version is not None and one.section.engine == "vllm" and seen["bonus in length"] != seen["no bonus in length"]:
        should = any(row.length.name == "BONUS_EXCLUDED" for row in definitions_for("vllm", "log", version).rows)
        certain = len(definitions_for("vllm", "log", version).rows) == 1
        if certain and should != one.adds_bonus:
            yield _contradict(
                "release and accept length",
                f"vLLM {version} {'leaves the bonus token out' if should else 'counts the bonus token'}; these lines "
                f"do the opposite",
            )


def _counts(one: Study) -> Iterator[Finding]:
    """Drafted by rounds is k, and steps without drafts flatter the length."""
    rounds, steps = one.columns["rounds"], one.columns["steps"]
    if one.section.engine == "sglang":
        return
    known = (rounds > 0) & (steps > 0)
    if not known.any():
        return
    share = float(rounds[known].sum() / steps[known].sum())
    if share < SHARE_CALLED_FLATTERED:
        accepted = float(one.columns["accepted"][known].sum())
        per_step = 1.0 + accepted / float(steps[known].sum())
        yield Finding(
            code="steps-without-drafts",
            severity="warning",
            confidence="medium",
            title=f"About {share * 100:.0f} % of decode steps carried drafts: the printed length "
            f"{one.overall.mean:.2f} divides by those "
            f"only, over all steps it is {per_step:.2f}.",
            evidence=(
                (
                    f"{float(rounds[known].sum()):.0f} steps with drafts of about {float(steps[known].sum()):.0f} (tokens "
                    f"generated less "
                    "accepted ones)"
                ),
            ),
            remedy=f"Judge speed by {per_step:.2f}. Usual with n-gram drafting, which often finds no match; with a "
            f"drafter model it "
            "means that speculation is switched off part of the time (by batch size, by request).",
        )


def _contradict(what: str, how: str) -> Finding:
    return Finding(
        code="counters-contradict",
        severity="error",
        confidence="high",
        title=f"Printed figures contradict each other: {what}.",
        evidence=(how,),
        remedy="Trust none of these figures until it is clear why: lines of several servers mixed in one file, an edited log, or a "
        "patched engine. Scrape /metrics twice and compare the counters.",
    )
