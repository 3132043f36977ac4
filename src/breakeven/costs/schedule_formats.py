"""A schedule in the engines' own words, by release: vLLM's numbers by batch size, SGLang's slots; refused where a release has none.

Read in the packages, and run in real vLLM 0.32.0 and SGLang 0.5.23 (docs/curve.md): vLLM takes
`num_speculative_tokens_per_batch_size` inside its speculative configuration from 0.24.0 (0.23.0 has no such key); ranges hold both
their ends, the first must begin at 1, and the last one's number is carried on beyond it. With data parallelism it is dropped with a
warning. SGLang takes slots by batch size in the file that `--speculative-adaptive-config` names from 0.5.13 (0.5.12.post1 knows one
list of at least two candidates for all batches, which cannot say this); a slot holds from its own batch size up to the next, and
one with a single candidate never changes. It needs chains (topk 1) and refuses attention data parallelism.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from breakeven.costs.schedule import Schedule, Stretch
from breakeven.errors import UsageError
from breakeven.units import plural
from breakeven.versions import Version

__all__ = ["Spelled", "for_sglang", "for_vllm", "sglang_slots", "vllm_ranges"]

VLLM_SINCE, VLLM_CHECKED = Version.parse("0.24.0"), Version.parse("0.32.0")
SGLANG_SINCE, SGLANG_CHECKED = Version.parse("0.5.13"), Version.parse("0.5.23")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelled:
    """`flags` go to the engine's command line; `config` is the content of the file they name, where they name one.

    remarks: what the engine does with it that one should know.
    """

    flags: tuple[str, ...]
    config: str | None = None
    remarks: tuple[str, ...] = ()


def vllm_ranges(stretches: Sequence[Stretch], max_running_requests: int) -> list[list[int]]:
    """[first, last, drafts] for every stretch, the last to `max_running_requests`.

    Nothing is left out above `max_running_requests`: served with a larger limit, vLLM would carry the number before it on.
    """
    return [
        [stretch.first, max(stretch.first, max_running_requests) if stretch.last is None else stretch.last, stretch.num_drafted]
        for stretch in stretches
    ]


def sglang_slots(stretches: Sequence[Stretch]) -> dict[str, dict[str, list[int]]]:
    """The first batch of each stretch, with its number of steps as the only candidate."""
    return {str(stretch.first): {"candidate_steps": [stretch.num_drafted]} for stretch in stretches}


def for_vllm(
    schedule: Schedule, version: Version | None, *, max_running_requests: int, drafter: str, data_parallel: int = 1
) -> Spelled:
    """The `--speculative-config` that runs `schedule`.

    Raises:
        UsageError: this release has no schedule by batch size, or drops it.
    """
    most = _drafts_somewhere(schedule)
    if version is not None and version < VLLM_SINCE:
        raise UsageError(
            f"vLLM {version} has no num_speculative_tokens_per_batch_size (it came with {VLLM_SINCE}); {_instead(schedule)}"
        )
    if data_parallel > 1:
        raise UsageError(
            f"vLLM drops num_speculative_tokens_per_batch_size with data parallelism ({data_parallel} copies): the copies could "
            f"choose different numbers and wait for each other for ever. {_instead(schedule)}"
        )
    config: dict[str, Any] = {
        "method": "eagle3",
        "model": drafter,
        "num_speculative_tokens": most,
        "num_speculative_tokens_per_batch_size": vllm_ranges(schedule.stretches, max_running_requests),
    }
    remark = (
        "vLLM's first model runner replaces full CUDA graphs by piecewise ones when the number of drafts changes with the batch; "
        "the second (VLLM_USE_V2_MODEL_RUNNER=1) keeps them"
    )
    return Spelled(
        flags=("--speculative-config", json.dumps(config)), remarks=(remark, *_unverified("vLLM", version, VLLM_CHECKED))
    )


def for_sglang(schedule: Schedule, version: Version | None, *, drafter: str, config_path: str, data_parallel: int = 1) -> Spelled:
    """The flags, and the file that `--speculative-adaptive-config` names, that run `schedule`.

    Raises:
        UsageError: this release has no slots by batch size, or the layout forbids them.
    """
    most = _drafts_somewhere(schedule)
    if version is not None and version < SGLANG_SINCE:
        raise UsageError(f"SGLang {version} has no steps by batch size (they came with {SGLANG_SINCE}); {_instead(schedule)}")
    if data_parallel > 1:
        raise UsageError(
            f"SGLang refuses adaptive speculation with attention data parallelism ({data_parallel} copies), whose copies would not "
            f"agree on a number; run the copies as servers of their own, or {_instead(schedule)}"
        )
    flags = ["--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", drafter, "--speculative-num-steps", str(most)]
    flags += ["--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", str(most + 1)]
    flags += ["--speculative-adaptive", "--speculative-adaptive-config", config_path]
    remark = (
        "SGLang looks the batch up after padding it to the next recorded graph, so a change takes place at the graph size below "
        "its batch"
    )
    return Spelled(
        flags=tuple(flags),
        config=json.dumps(sglang_slots(schedule.stretches), indent=2) + "\n",
        remarks=(remark, *_unverified("SGLang", version, SGLANG_CHECKED)),
    )


def _drafts_somewhere(schedule: Schedule) -> int:
    if schedule.most_drafted == 0:
        raise UsageError("the schedule drafts nowhere: serve without speculation, it needs no schedule")
    return schedule.most_drafted


def _instead(schedule: Schedule) -> str:
    fixed = schedule.fixed
    what = f"{plural(fixed.num_drafted, 'draft')} everywhere" if fixed.num_drafted else "no speculation"
    text = f"run {what}, which by value is at worst {fixed.worst_loss:.0%} slower than the schedule"
    text += f" (at {plural(fixed.worst_batch, 'running request')})"
    return text + (f"; whether it pays is undecided at {', '.join(map(str, fixed.undecided))}" if fixed.undecided else "")


def _unverified(engine: str, version: Version | None, checked: Version) -> tuple[str, ...]:
    if version is None:
        return (f"{engine}'s release is not known here; this is the spelling of {checked}",)
    return (f"{engine} {version} was not looked at; this is the spelling of {checked}",) if version > checked else ()
