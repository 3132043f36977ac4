"""No draft is ever accepted.

Detects: an accept length of 1.00, up to two accepted drafts in a hundred rounds, in a log, in counters or in a run.

Why it hurts: every round pays for drafting and verifying and yields the one token that a plain step yields.

Evidence: the accept length and how many rounds it rests on. 1.00 is the least there can be.

Remedy: a wiring fault: the method against the head, the layers in use, the vocabulary map, dropped tensors, the drafter's own
quantization. Not more training, and not another quantization of the target.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.checklist import static_checks
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.observed import LOOKUPS
from breakeven.doctor.reported import seen
from breakeven.doctor.suspicions import not_quantization, not_training
from breakeven.doctor.told import Told
from breakeven.readers.findings.curve import floor


def check(evidence: Evidence) -> Iterator[Told]:
    with_what = evidence.launch.drafts_with if evidence.launch is not None else None
    if with_what in LOOKUPS:
        return  # text that repeats nothing gives no matches: no wiring is at fault
    refutes = (*not_quantization(evidence, "an accept length of 1.00"), *not_training("that none is accepted"))
    for one in evidence.observed:
        finding = floor(one.accept_length, one.level.rounds, one.source)
        if finding is not None:
            # a handful of rounds shows the sign, but refutes nothing
            if with_what is not None:
                looked_at = f"A fault and not weak training. Look at, in this order: {'; '.join(static_checks(with_what))}."
                finding = finding.model_copy(update={"remedy": looked_at})
            yield seen(one.source, finding, "floor", refutes=refutes if one.is_enough or one.level.num_lines > 1 else ())
