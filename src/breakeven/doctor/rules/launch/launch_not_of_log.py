"""The log or the counters are of another launch than the command.

Detects: another engine, or another number of drafts a round, in logs and metrics than in the launch command.

Why it hurts: flags of the one are then taken for the cause of what the other shows, and the rates are read with the wrong number of
drafts.

Evidence: the command, and what the log's banner, its per-position rates or the counters say.

Remedy: the command and the log of one and the same start.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.launch import Launch
from breakeven.doctor.told import Fault, Told
from breakeven.readers.reading import Reading

_NAMES = {"sglang": "SGLang", "vllm": "vLLM"}


def check(evidence: Evidence) -> Iterator[Told]:
    launch, readings = evidence.launch, evidence.readings
    assert launch is not None
    assert readings is not None
    if not launch.is_whole:
        return  # read off these very logs
    drafting = [reading for reading in readings.readings if reading.acceptance is not None]
    told = [(reading.source, how) for reading in drafting if (how := _differs(launch, reading))]
    if not told or len(told) < len(drafting):
        return  # one of them at least is of this launch, the others are there to be compared
    yield Fault(
        severity="warning",
        confidence="high",
        title=f"{told[0][0]} is not of this launch: {told[0][1]}",
        evidence=(str(launch.method), *(f"{source}: {how}" for source, how in told[:6])),
        remedy="Give the command and the log of the same start; until then nothing here explains what the log shows.",
    )


def _differs(launch: Launch, reading: Reading) -> str:
    if reading.engine != launch.engine and reading.engine in _NAMES:
        return f"{_NAMES[reading.engine]} wrote it, the command starts {_NAMES[launch.engine]}"
    seen = _drafts(reading)
    asked = launch.num_drafted if launch.topk == 1 else None
    if asked is None or seen is None or seen == asked or launch.flag("--speculative-adaptive"):
        return ""
    if launch.spec("num_speculative_tokens_per_batch_size") or "drafts_by_batch" in reading.settings:
        return ""
    return f"it drafts {seen} a round, the command asks for {asked}"


def _drafts(reading: Reading) -> int | None:
    """Drafts a round as the engine itself says; what was only inferred from rates, or told by the user, proves nothing."""
    found = reading.acceptance
    steps = reading.settings.get("speculative_num_steps", "")
    if reading.engine == "sglang":
        return int(steps) if steps.isdigit() and len(steps) < 4 else None
    if found is None or not found.joint:
        return None
    return len(found.joint)
