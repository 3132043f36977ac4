"""Gates one after another, cheapest first, up to the first that stops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from breakeven.drafter.gates.capture_gate import capture_gate
from breakeven.drafter.gates.data_gate import data_gate
from breakeven.drafter.gates.objective_gate import objective_gate
from breakeven.drafter.gates.pipeline import Conversation, Pipeline
from breakeven.drafter.gates.result import GateResult, GatesReport
from breakeven.drafter.gates.saving_gate import saving_gate
from breakeven.drafter.gates.truth import TargetTruth

__all__ = ["Gate", "agreement_gates", "run_gates"]

Gate = Callable[[], GateResult]
# Single rows are compared, so a few samples show every fault; more would only take longer.
NUM_SAMPLES = 4


def run_gates(gates: Iterable[Gate], tell: Callable[[GateResult], None] = lambda _: None) -> GatesReport:
    """Run `gates` in order; what comes after one that failed or could not decide is not run."""
    results: list[GateResult] = []
    for gate in gates:
        results.append(gate())
        tell(results[-1])
        if results[-1].stops:
            break
    return GatesReport(gates=tuple(results))


def agreement_gates(
    conversations: Sequence[Conversation], pipeline: Pipeline, truth: TargetTruth, num_samples: int = NUM_SAMPLES
) -> tuple[Gate, ...]:
    """Every stage of the trainer against something that shares no code with it: data, capture, objective, saving. Seconds to
    minutes.

    Mild faults (a layer off by one costs 0.1 of accept length) would pass every later gate; here they are exact.
    """
    some = list(conversations[:num_samples])
    # the oracle computes a row at a time: short samples say the same sooner
    short = sorted((conversation.sample for conversation in conversations), key=lambda sample: len(sample.token_ids))[:num_samples]
    return (
        lambda: data_gate(some, truth),
        lambda: capture_gate(short, pipeline.capture, pipeline.config.auxiliary_layers, truth),
        lambda: objective_gate(short, pipeline, truth),
        lambda: saving_gate(pipeline),
    )
