"""Small phrases that several parts of a reported verdict share."""

from __future__ import annotations

from collections.abc import Iterable

from breakeven.printed.definitions import DEFINITIONS, DEFINITIONS_IN_THE_WILD, Definition
from breakeven.printed.result import Candidate
from breakeven.verdict.reported.readings import ArmReading
from breakeven.versions import Span

__all__ = ["engine_name", "meanings", "percent_change", "printed", "printer", "releases", "share", "spoken_formula"]

_ENGINE_NAMES = {"sglang": "SGLang", "vllm": "vLLM", "tensorrt-llm": "TensorRT-LLM"}


def engine_name(engine: str) -> str:
    return _ENGINE_NAMES.get(engine, engine or "engine")


def share(value: float) -> str:
    """ "23 %", as elsewhere in what Breakeven prints."""
    return f"{value * 100.0:.0f} %"


def printed(reading: ArmReading) -> str:
    """ "printed accept length 1.00 and accept rate 0.25, 3-1-4"."""
    figures = (("accept length", reading.length), ("accept rate", reading.rate))
    said = " and ".join(f"{name} {figure}" for name, figure in figures if figure is not None)
    config = f" ({reading.arm.config})" if reading.arm.config else ""
    return f"printed {said}{config}" if said else f"nothing printed{config}"


def releases(spans: tuple[Span, ...]) -> str:
    """ "0.5.6 to 0.5.10.post1 (or 0.5.3.post3 to 0.5.5)"."""
    first, *others = (str(span) for span in spans)
    return f"{first} (or {', '.join(others)})" if others else first


def spoken_formula(definition: Definition) -> str:
    return definition.rate.value if definition.rate is not None else definition.length.value


def printer(definition: Definition) -> str:
    """Who may have printed a figure; for an engine that is not on record, what it may mean."""
    if definition not in (*DEFINITIONS, *DEFINITIONS_IN_THE_WILD):
        return f"it counts {definition.length.value}"
    return (
        f"it means {spoken_formula(definition)}" if definition in DEFINITIONS_IN_THE_WILD else f"printed by {definition.releases}"
    )


def meanings(candidates: Iterable[Candidate]) -> list[tuple[float, str]]:
    """Accept lengths that a printed figure may stand for, each with the condition; those that agree to two decimals are one."""
    found: dict[str, tuple[float, list[str]]] = {}
    for candidate in candidates:
        length = candidate.accept_length.estimate
        found.setdefault(f"{length:.2f}", (length, []))[1].append(printer(candidate.definition))
    return [(length, " or ".join(dict.fromkeys(who))) for length, who in found.values()]


def percent_change(ratio: float) -> str:
    """ "+8 %" or "-36 %"."""
    return f"{(ratio - 1.0) * 100.0:+.0f} %"
