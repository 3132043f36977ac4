"""The engine's loop body: admit, prefill, draft, verify, emit. One call of `step` is one forward pass of the target.

Single-threaded and synchronous; the server calls it from a thread of its own.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from breakeven.drafter.model.llama import LlamaConfig
from breakeven.drafter.serving.counting import Counts
from breakeven.drafter.serving.drafting import Drafter
from breakeven.drafter.serving.forced import ForcedAcceptance
from breakeven.drafter.serving.layers import Span
from breakeven.drafter.serving.models import open_models
from breakeven.drafter.serving.requests import CoreStats, GenerationRequest, TokenChunk
from breakeven.drafter.serving.sampling import Sampler, greedy_choices, greedy_verify
from breakeven.drafter.serving.sequence import RunningSequence
from breakeven.drafter.serving.target import Target
from breakeven.errors import UsageError

__all__ = ["EngineCore"]

# Prompt tokens that one iteration may prefill, so that a burst of arrivals does not stall running answers for long.
PREFILL_TOKENS = 2048

# (first, last, drafts) by running requests
Schedule = Sequence[tuple[int, int, int]]


class EngineCore:
    """Continuous batching over a bounded number of sequences, with or without speculation."""

    def __init__(
        self,
        target: Target,
        drafter: Drafter | None,
        *,
        num_draft_tokens: int,
        forced_accept_length: float | None,
        max_num_seqs: int,
        context_length: int,
        seed: int,
        schedule: Schedule = (),
    ) -> None:
        """`schedule` is that of `engines.base.Speculation`: drafts a round by how many requests run."""
        self.context_length = context_length
        self.max_num_seqs = max_num_seqs
        self._target = target
        self._drafter = drafter
        self._k = num_draft_tokens if drafter else 0
        self._schedule = schedule
        self._forced: ForcedAcceptance | None = None
        if forced_accept_length is not None:
            self._forced = ForcedAcceptance(forced_accept_length, num_draft_tokens=self._k, num_slots=max_num_seqs)
        self._seed = seed
        self._waiting: deque[GenerationRequest] = deque()
        self._running: dict[str, RunningSequence] = {}
        # A heap: the lowest free slot is taken, so that those in use lie side by side and attention reads little else.
        self._free = list(range(max_num_seqs))
        self._counts = Counts(per_position=[0] * self._k)

    @classmethod
    def load(
        cls,
        target: Path,
        *,
        method: str | None = None,
        num_draft_tokens: int = 3,
        drafter: Path | None = None,
        forced_accept_length: float | None = None,
        ngram_max: int = 3,
        ngram_min: int = 1,
        schedule: Schedule = (),
        dtype: str = "auto",
        max_num_seqs: int = 8,
        context_length: int | None = None,
        num_threads: int | None = None,
        seed: int = 0,
    ) -> EngineCore:
        """Read the model (and drafter) folders and make a core ready to step.

        Raises:
            UsageError: options that do not go together.
            CheckpointError: a folder that cannot be read, is not supported, or does not fit the other.
        """
        if num_threads is not None:
            if num_threads < 1:
                raise UsageError(f"num_threads is {num_threads}; expected at least 1")
            torch.set_num_threads(num_threads)
        models = open_models(
            target,
            method=method,
            num_draft_tokens=num_draft_tokens,
            drafter=drafter,
            ngram_max=ngram_max,
            ngram_min=ngram_min,
            dtype=dtype,
            max_num_seqs=max_num_seqs,
            context_length=context_length,
        )
        return cls(
            models.target,
            models.drafter,
            num_draft_tokens=num_draft_tokens,
            forced_accept_length=forced_accept_length,
            max_num_seqs=max_num_seqs,
            context_length=models.context_length,
            seed=seed,
            schedule=schedule,
        )

    @property
    def config(self) -> LlamaConfig:
        return self._target.config

    @property
    def has_work(self) -> bool:
        return bool(self._waiting or self._running)

    @property
    def stats(self) -> CoreStats:
        return self._counts.stats(num_running=len(self._running), num_waiting=len(self._waiting))

    def submit(self, request: GenerationRequest) -> None:
        """Queue a request.

        Raises:
            UsageError: an empty prompt, one that leaves no room in the context, a token outside the vocabulary, a sampling option
                out of range, or an id that is in use.
        """
        if request.request_id in self._running or any(request.request_id == other.request_id for other in self._waiting):
            raise UsageError(f"request id {request.request_id!r} is in use; expected a new one")
        request.refuse_impossible(context_length=self.context_length, vocab_size=self.config.vocab_size)
        self._waiting.append(request)

    def abort(self, request_id: str) -> None:
        """Forget a request, wherever it is; unknown ids are ignored (it may just have ended)."""
        sequence = self._running.pop(request_id, None)
        if sequence is not None:
            heapq.heappush(self._free, sequence.slot)
        else:
            self._waiting = deque(request for request in self._waiting if request.request_id != request_id)

    @torch.inference_mode()
    def step(self) -> list[TokenChunk]:
        """Prefill what can be admitted; when nothing can, one round of every running sequence.

        Never both: a first token is handed out before others' next round, so that waiting for it is the prompt's own time.
        """
        admitted = self._admit()
        return self._prefill(admitted) if admitted else self._round()

    def _admit(self) -> list[RunningSequence]:
        admitted: list[RunningSequence] = []
        num_tokens = 0
        while self._waiting and self._free:
            request = self._waiting[0]
            num_tokens += len(request.prompt_ids)
            if admitted and num_tokens > PREFILL_TOKENS:
                break
            self._waiting.popleft()
            seed = [self._seed, self._counts.num_requests] if request.seed is None else [request.seed]
            sampler = Sampler(request.temperature, request.top_p, np.random.default_rng(seed)) if request.temperature > 0 else None
            slot = heapq.heappop(self._free)
            sequence = RunningSequence(
                request=request,
                slot=slot,
                tokens=list(request.prompt_ids),
                sampler=sampler,
                stop_ids=request.stop_token_ids | (frozenset() if request.ignore_eos else self.config.eos_token_ids),
                settled=Span(slot, 0, len(request.prompt_ids)),
            )
            self._running[request.request_id] = sequence
            self._counts.num_requests += 1
            self._counts.prompt_tokens += len(request.prompt_ids)
            if self._drafter:
                self._drafter.start(slot)
            admitted.append(sequence)
        return admitted

    def _prefill(self, sequences: Sequence[RunningSequence]) -> list[TokenChunk]:
        spans = [sequence.settled for sequence in sequences]
        token_ids = torch.tensor([token for sequence in sequences for token in sequence.tokens])
        hidden, states = self._target.forward(token_ids, spans, self._auxiliary_layers)
        counts = [span.count for span in spans]
        last_rows = torch.tensor(counts).cumsum(0) - 1
        logits = self._target.logits(hidden[last_rows])
        choices, near_ties = greedy_choices(logits)
        chunks = []
        for row, sequence in enumerate(sequences):
            if states is not None:
                end = int(last_rows[row]) + 1
                sequence.states = states[end - counts[row] : end]
            if sequence.sampler:
                emitted = sequence.sampler.verify(logits[row : row + 1], [])
            else:
                emitted = [choices[row]]
                self._counts.near_ties += near_ties[row]
            chunks.append(self._emit(sequence, emitted))
        return chunks

    @property
    def _auxiliary_layers(self) -> tuple[int, ...]:
        return self._drafter.auxiliary_layers if self._drafter else ()

    def _round(self) -> list[TokenChunk]:
        sequences = sorted(self._running.values(), key=lambda sequence: sequence.slot)
        if not sequences:
            return []
        drafts = self._draft(sequences)
        spans = [
            Span(sequence.slot, len(sequence.tokens) - 1, 1 + len(draft)) for sequence, draft in zip(sequences, drafts, strict=True)
        ]
        rows = [token for sequence, draft in zip(sequences, drafts, strict=True) for token in (sequence.tokens[-1], *draft)]
        hidden, states = self._target.forward(torch.tensor(rows), spans, self._auxiliary_layers)
        logits = self._target.logits(hidden)
        choices, near_ties = greedy_choices(logits)
        chunks = []
        first = 0
        for sequence, draft, span in zip(sequences, drafts, spans, strict=True):
            last = first + span.count
            if self._forced is not None:
                num_accepted = self._forced.accepted(sequence.slot, len(draft))
                emitted = [*draft[:num_accepted], choices[first + num_accepted]]
            elif sequence.sampler:
                emitted = sequence.sampler.verify(logits[first:last], draft)
            else:
                emitted = greedy_verify(choices[first:last], draft)
                self._counts.near_ties += sum(near_ties[first : first + len(emitted)])
            self._counts.count_round(len(draft), len(emitted) - 1)
            sequence.settled = Span(span.slot, span.start, len(emitted))
            if states is not None:
                sequence.states = states[first : first + len(emitted)]
            chunks.append(self._emit(sequence, emitted))
            first = last
        return chunks

    def _draft(self, sequences: Sequence[RunningSequence]) -> list[list[int]]:
        if self._drafter is None:
            return [[] for _ in sequences]
        states = (
            torch.cat([sequence.states for sequence in sequences if sequence.states is not None])
            if self._auxiliary_layers
            else None
        )
        return self._drafter.propose(
            [sequence.tokens for sequence in sequences],
            [sequence.settled for sequence in sequences],
            states,
            self._drafts_now(len(sequences)),
        )

    def _drafts_now(self, num_running: int) -> int:
        begun = [drafts for first, _, drafts in self._schedule if first <= num_running]
        return min(begun[-1], self._k) if begun else self._k

    def _emit(self, sequence: RunningSequence, emitted: list[int]) -> TokenChunk:
        """Append `emitted`, cut at the request's end, and free the slot if it has ended."""
        emitted, finish = sequence.append(emitted, self.context_length)
        self._counts.generation_tokens += len(emitted)
        if finish:
            self.abort(sequence.request.request_id)
        return TokenChunk(request_id=sequence.request.request_id, token_ids=tuple(emitted), finish_reason=finish)
