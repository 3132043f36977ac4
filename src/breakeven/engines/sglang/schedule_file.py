"""A schedule as the file that SGLang's `--speculative-adaptive-config` names: one candidate a slot, so that nothing adapts in it.

A slot holds from its own batch size up to the next one. SGLang looks a batch up after padding it to the next recorded graph, so a
change takes place at the graph size below its batch. The number of steps that it is started with has to be a candidate somewhere:
where the schedule never drafts so many, a slot that no batch reaches has it (read in 0.5.13 to 0.5.23, run in 0.5.23).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from breakeven.checkpoints.cache import cache_dir
from breakeven.errors import UsageError

__all__ = ["SCHEDULE_FLAG", "schedule_file"]

SCHEDULE_FLAG = "--speculative-adaptive-config"

# More requests than any server runs at once.
_NO_BATCH = 1_000_000


def schedule_file(schedule: Sequence[tuple[int, int, int]], num_steps: int) -> Path:
    """The file in the cache for this schedule, named by its content and written on first use. Safe for two runs at once.

    num_steps: what `--speculative-num-steps` says, the most drafts there can be.

    Raises:
        UsageError: the cache cannot be written.
    """
    slots = {str(first): {"candidate_steps": [drafts]} for first, _, drafts in schedule}
    if all(drafts != num_steps for _, _, drafts in schedule):
        slots[str(_NO_BATCH)] = {"candidate_steps": [num_steps]}
    content = json.dumps(slots, indent=2) + "\n"
    path = cache_dir() / "schedules" / f"{hashlib.sha256(content.encode()).hexdigest()[:16]}.json"
    if path.is_file() and path.read_text(encoding="utf-8") == content:
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}")
        partial.write_text(content, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise UsageError(
            f"{path}: the schedule cannot be written ({error.strerror}); set BREAKEVEN_CACHE to a folder that can be"
        ) from error
    return path
