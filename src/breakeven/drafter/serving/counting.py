"""The core's counters. Counting follows vLLM: drafts accepted past the end of a request in its last round count as accepted, though
they are not emitted. Steps are counted exactly: one for each running sequence and round, the prompt's own pass not included.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from breakeven.acceptance import Acceptance
from breakeven.drafter.serving.requests import CoreStats

__all__ = ["Counts"]


@dataclass(slots=True)
class Counts:
    prompt_tokens: int = 0
    generation_tokens: int = 0
    num_requests: int = 0
    near_ties: int = 0
    steps: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    per_position: list[int] = field(default_factory=list)

    def count_round(self, num_drafts: int, num_accepted: int) -> None:
        """One step of one sequence; without drafts it is a step, but no round of speculation."""
        self.steps += 1
        if num_drafts:
            self.rounds += 1
            self.drafted += num_drafts
            self.accepted += num_accepted
            for position in range(num_accepted):
                self.per_position[position] += 1

    def stats(self, *, num_running: int, num_waiting: int) -> CoreStats:
        return CoreStats(
            num_running=num_running,
            num_waiting=num_waiting,
            prompt_tokens=self.prompt_tokens,
            generation_tokens=self.generation_tokens,
            num_requests=self.num_requests,
            near_ties=self.near_ties,
            acceptance=Acceptance(
                num_steps=self.steps,
                num_rounds=self.rounds,
                num_drafted=self.drafted,
                num_accepted=self.accepted,
                accepted_per_position=tuple(self.per_position),
            ),
        )
