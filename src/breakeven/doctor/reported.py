"""Findings of the readers as signs: what `breakeven read` notices is not looked for a second time."""

from __future__ import annotations

import re
from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import Sign, Symptoms
from breakeven.doctor.told import Fault, Seen
from breakeven.findings import Finding
from breakeven.readers.reading import Comparison

__all__ = ["fault", "host_cache", "lower_of", "reported", "seen"]


def reported(evidence: Evidence, *codes: str) -> Iterator[tuple[str, Finding]]:
    """(where, finding) of every reading, comparison and of the files together, with one of `codes`."""
    if evidence.readings is None:
        return
    several = len(evidence.readings.readings) > 1
    for reading in evidence.readings.readings:
        name = reading.source if reading.part == 1 else f"{reading.source}, part {reading.part}"
        yield from ((name if several else reading.source, finding) for finding in reading.findings if finding.code in codes)
    for comparison in evidence.readings.comparisons:
        where = f"{comparison.first} and {comparison.second}"
        yield from ((where, finding) for finding in comparison.findings if finding.code in codes)
    yield from (("the files together", finding) for finding in evidence.readings.findings if finding.code in codes)


def host_cache(evidence: Evidence) -> tuple[str, ...]:
    """What says that the server keeps prefixes in host memory: a banner, or the launch command. Empty where nothing does."""
    found = []
    if evidence.launch is not None and (flag := evidence.launch.flag(*_HOST_CACHE_FLAGS)):
        found.append(str(flag))
    if evidence.readings is not None:
        cached = (one for one in evidence.readings.readings if one.settings.get("enable_hierarchical_cache") == "True")
        found += [f"{reading.source}: enable_hierarchical_cache=True" for reading in cached]
    if evidence.readings is not None:
        named = (one.source for one in evidence.readings.readings if _CACHE_NAME.search(one.source))
        found += [f"the name of {name} speaks of a cache" for name in named]
    return tuple(dict.fromkeys(found))


# Users name their files by what they did.
_CACHE_NAME = re.compile(r"hi.?cache|hierarchical|host.?cache|cache.?reuse|reuse|flush|offload", re.IGNORECASE)
_HOST_CACHE_FLAGS = ("--enable-hierarchical-cache", "--kv-offloading-size", "--kv-transfer-config")


def lower_of(comparison: Comparison) -> str | None:
    """Which of two logs accepts less beyond noise; None where neither does, or each at another batch."""
    gaps = [one.accept_lengths for one in comparison.differences if one.judgement == "effect" and one.accept_lengths is not None]
    signs = {second > first for first, second in gaps}
    if len(signs) != 1:
        return None
    return comparison.first if signs == {True} else comparison.second


def seen(where: str, finding: Finding, sign: Sign, *, refutes: tuple[str, ...] = ()) -> Seen:
    """`finding` as a sign, its evidence headed by where it was seen."""
    return Seen(
        sign=sign,
        # what may be chance is no error yet
        severity="warning" if finding.severity == "error" and finding.confidence == "low" else finding.severity,
        confidence=finding.confidence,
        title=finding.title.removesuffix("."),
        evidence=tuple(line if where in line else f"{where}: {line}" for line in finding.evidence) or (where,),
        remedy=finding.remedy,
        refutes=refutes,
    )


def fault(where: str, finding: Finding, symptoms: Symptoms) -> Fault:
    """`finding` as a cause, its evidence headed by where it was seen."""
    return Fault(
        severity=finding.severity,
        confidence=finding.confidence,
        title=finding.title.removesuffix("."),
        evidence=tuple(f"{where}: {line}" for line in finding.evidence),
        remedy=finding.remedy,
        symptoms=symptoms,
    )
