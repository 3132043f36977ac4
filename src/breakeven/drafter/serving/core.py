"""The engine's loop body: admit, prefill, draft, verify, emit. One call of `step` is one forward pass of the target.

Single-threaded and synchronous; the server calls it from a thread of its own. Counting follows vLLM: drafts accepted past the end
of a request in its last round count as accepted, though they are not emitted. Steps are counted exactly: one for each running
sequence and round, the prompt's own pass not included.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from breakeven.acceptance import Acceptance
from breakeven.checkpoints.folder import open_folder
from breakeven.drafter.model.eagle3 import Eagle3Config, Eagle3Weights
from breakeven.drafter.model.llama import LlamaConfig, LlamaWeights
from breakeven.drafter.serving.drafting import Drafter, Eagle3Drafter, NgramDrafter
from breakeven.drafter.serving.layers import KVCache, Rotary, Span
from breakeven.drafter.serving.requests import CoreStats, FinishReason, GenerationRequest, TokenChunk
from breakeven.drafter.serving.sampling import Sampler, greedy_choices
from breakeven.drafter.serving.target import Target
from breakeven.errors import UsageError

__all__ = ["DTYPES", "EngineCore"]

logger = logging.getLogger(__name__)

DTYPES = {"auto": torch.float32, "float32": torch.float32, "bfloat16": torch.bfloat16}
# Prompt tokens that one iteration may prefill, so that a burst of arrivals does not stall running answers for long.
PREFILL_TOKENS = 2048
DEFAULT_CONTEXT = 2048


@dataclass(slots=True, eq=False)
class _Sequence:
    request: GenerationRequest
    slot: int
    tokens: list[int]
    sampler: Sampler | None
    stop_ids: frozenset[int]
    # Rows the target has run since the drafter last looked, and their auxiliary states.
    settled: Span
    states: Tensor | None = None
    num_generated: int = 0


@dataclass(slots=True)
class _Counts:
    prompt_tokens: int = 0
    generation_tokens: int = 0
    num_requests: int = 0
    near_ties: int = 0
    steps: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    per_position: list[int] = field(default_factory=list)


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
        if forced_accept_length is not None and (drafter is None or not 1.0 <= forced_accept_length <= num_draft_tokens + 1):
            raise UsageError(
                f"forced accept length {forced_accept_length} cannot be served with "
                f"{num_draft_tokens if drafter else 'no'} drafts a round; expected a drafter and 1 to {num_draft_tokens + 1}"
            )
        self.context_length = context_length
        self.max_num_seqs = max_num_seqs
        self._target = target
        self._drafter = drafter
        self._k = num_draft_tokens if drafter else 0
        self._schedule = schedule
        self._forced = forced_accept_length
        # Acceptances owed to each slot, staggered so that a round's total is even too; it outlives the sequences.
        self._forced_credit = [slot / max_num_seqs for slot in range(max_num_seqs)]
        self._seed = seed
        self._waiting: deque[GenerationRequest] = deque()
        self._running: dict[str, _Sequence] = {}
        # A heap: the lowest free slot is taken, so that those in use lie side by side and attention reads little else.
        self._free = list(range(max_num_seqs))
        self._counts = _Counts(per_position=[0] * self._k)

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
        if method not in (None, "ngram", "eagle3"):
            raise UsageError(f"method {method!r} is unknown; expected ngram or eagle3")
        if method is not None and num_draft_tokens < 1:
            raise UsageError(f"num_draft_tokens is {num_draft_tokens}; expected at least 1")
        if method == "eagle3" and drafter is None:
            raise UsageError("method eagle3 needs a drafter folder")
        if not 1 <= ngram_min <= ngram_max:
            raise UsageError(f"n-gram sizes from {ngram_min} to {ngram_max} make no sense; expected 1 <= min <= max")
        if max_num_seqs < 1:
            raise UsageError(f"max_num_seqs is {max_num_seqs}; expected at least 1")
        if dtype not in DTYPES:
            raise UsageError(f"dtype {dtype!r} is unknown; expected one of {', '.join(DTYPES)}")
        if num_threads is not None:
            if num_threads < 1:
                raise UsageError(f"num_threads is {num_threads}; expected at least 1")
            torch.set_num_threads(num_threads)
        folder = open_folder(target)
        config = LlamaConfig.from_folder(folder)
        context = min(config.max_positions, DEFAULT_CONTEXT) if context_length is None else context_length
        if not 2 <= context <= config.max_positions:
            raise UsageError(f"context length is {context}; expected 2 to the model's {config.max_positions} positions")
        # A round may run k drafts past the last position that is kept.
        positions = context + num_draft_tokens + 1
        tensor_dtype = DTYPES[dtype]
        # Heads are opened before weights are read: a wrong drafter is reported in milliseconds.
        head = open_folder(drafter) if method == "eagle3" and drafter is not None else None
        head_config = Eagle3Config.from_folder(head, config) if head else None
        with torch.inference_mode():
            weights = LlamaWeights.from_folder(folder, config, tensor_dtype)
            model = Target(
                config, weights, KVCache(config, max_num_seqs, positions, tensor_dtype), Rotary(config, positions, tensor_dtype)
            )
            proposer: Drafter | None = None
            if method == "ngram":
                proposer = NgramDrafter(max_num_seqs, ngram_min, ngram_max)
            elif head is not None and head_config is not None:
                proposer = Eagle3Drafter(
                    head_config,
                    Eagle3Weights.from_folder(head, head_config, tensor_dtype),
                    model.embed,
                    KVCache(head_config.shape, max_num_seqs, positions, tensor_dtype),
                    Rotary(head_config.shape, positions, tensor_dtype),
                )
                logger.info("Using Eagle3 auxiliary layers %s from %s", head_config.auxiliary_layers, head_config.auxiliary_source)
        return cls(
            model,
            proposer,
            num_draft_tokens=num_draft_tokens,
            forced_accept_length=forced_accept_length,
            max_num_seqs=max_num_seqs,
            context_length=context,
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
        counts = self._counts
        return CoreStats(
            num_running=len(self._running),
            num_waiting=len(self._waiting),
            prompt_tokens=counts.prompt_tokens,
            generation_tokens=counts.generation_tokens,
            num_requests=counts.num_requests,
            near_ties=counts.near_ties,
            acceptance=Acceptance(
                num_steps=counts.steps,
                num_rounds=counts.rounds,
                num_drafted=counts.drafted,
                num_accepted=counts.accepted,
                accepted_per_position=tuple(counts.per_position),
            ),
        )

    def submit(self, request: GenerationRequest) -> None:
        """Queue a request.

        Raises:
            UsageError: an empty prompt, one that leaves no room in the context, a token outside the vocabulary, a sampling option
                out of range, or an id that is in use.
        """
        if request.request_id in self._running or any(request.request_id == other.request_id for other in self._waiting):
            raise UsageError(f"request id {request.request_id!r} is in use; expected a new one")
        if not 1 <= len(request.prompt_ids) < self.context_length:
            raise UsageError(f"prompt of {len(request.prompt_ids)} tokens; expected 1 to {self.context_length - 1}")
        if not all(0 <= token < self.config.vocab_size for token in request.prompt_ids):
            raise UsageError(f"the prompt holds a token id outside the vocabulary of {self.config.vocab_size}")
        if request.max_tokens < 1:
            raise UsageError(f"max_tokens is {request.max_tokens}; expected at least 1")
        if not 0.0 <= request.temperature < math.inf:
            raise UsageError(f"temperature is {request.temperature}; expected 0 (greedy) or more")
        if not 0.0 < request.top_p <= 1.0:
            raise UsageError(f"top_p is {request.top_p}; expected above 0 and at most 1")
        if request.seed is not None and request.seed < 0:
            raise UsageError(f"seed is {request.seed}; expected 0 or more")
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

    def _admit(self) -> list[_Sequence]:
        admitted: list[_Sequence] = []
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
            sequence = _Sequence(
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

    def _prefill(self, sequences: Sequence[_Sequence]) -> list[TokenChunk]:
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
                num_accepted = self._forced_acceptance(sequence.slot, len(draft))
                emitted = [*draft[:num_accepted], choices[first + num_accepted]]
            elif sequence.sampler:
                emitted = sequence.sampler.verify(logits[first:last], draft)
            else:
                emitted = _greedy_verify(choices[first:last], draft)
                self._counts.near_ties += sum(near_ties[first : first + len(emitted)])
            self._count(len(draft), len(emitted) - 1)
            sequence.settled = Span(span.slot, span.start, len(emitted))
            if states is not None:
                sequence.states = states[first : first + len(emitted)]
            chunks.append(self._emit(sequence, emitted))
            first = last
        return chunks

    def _draft(self, sequences: Sequence[_Sequence]) -> list[list[int]]:
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

    def _forced_acceptance(self, slot: int, num_drafts: int) -> int:
        """Accept to order: a slot's mean over rounds is exact, and no two of its rounds differ by more than one (minimum variance).

        What a round could not accept, for want of drafts, is made up for by later ones, up to one full round.
        """
        assert self._forced is not None
        credit = min(self._forced_credit[slot], float(self._k)) + self._forced - 1.0
        # the small term keeps 0.1 + 0.2 + ... from falling just short of a whole number
        accepted = min(int(credit + 1e-9), num_drafts)
        self._forced_credit[slot] = credit - accepted
        return accepted

    def _count(self, num_drafts: int, num_accepted: int) -> None:
        counts = self._counts
        counts.steps += 1
        if num_drafts:
            counts.rounds += 1
            counts.drafted += num_drafts
            counts.accepted += num_accepted
            for position in range(num_accepted):
                counts.per_position[position] += 1

    def _emit(self, sequence: _Sequence, emitted: list[int]) -> TokenChunk:
        """Append `emitted`, cut at the request's end, and free the slot if it has ended."""
        room = min(sequence.request.max_tokens - sequence.num_generated, self.context_length - len(sequence.tokens))
        finish: FinishReason | None = None
        if len(emitted) >= room:
            emitted, finish = emitted[:room], "length"
        for index, token in enumerate(emitted):
            if token in sequence.stop_ids:
                emitted, finish = emitted[: index + 1], "stop"
                break
        sequence.tokens.extend(emitted)
        sequence.num_generated += len(emitted)
        self._counts.generation_tokens += len(emitted)
        if finish:
            self.abort(sequence.request.request_id)
        return TokenChunk(request_id=sequence.request.request_id, token_ids=tuple(emitted), finish_reason=finish)


def _greedy_verify(choices: Sequence[int], drafts: Sequence[int]) -> list[int]:
    """Drafts as long as they are what the target would have chosen, then the target's own choice."""
    num_accepted = 0
    while num_accepted < len(drafts) and drafts[num_accepted] == choices[num_accepted]:
        num_accepted += 1
    return [*drafts[:num_accepted], choices[num_accepted]]
