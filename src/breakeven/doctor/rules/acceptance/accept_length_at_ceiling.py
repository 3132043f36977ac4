"""Every draft is accepted.

Detects: an accept length at its maximum throughout.

Why it hurts: no drafter predicts real text perfectly. NaN logits, endless repetition, random prompts and forced acceptance look
like this, and every figure measured so is void.

Evidence: the accept length against drafts + 1.

Remedy: read some of the output.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.reported import reported, seen
from breakeven.doctor.told import Told
from breakeven.readers.findings.curve import ceiling

# A drafter that is never wrong has not been seen on text that somebody wrote.
REFUTES = ("A very good drafter: the best published heads lose a part of their drafts at every position on real text.",)


def check(evidence: Evidence) -> Iterator[Told]:
    for source, finding in reported(evidence, "accept-length-at-ceiling"):
        if evidence.forced_by:
            break
        yield seen(source, finding, "ceiling", refutes=REFUTES)
    for one in evidence.observed:
        # of a run: logs and dumps have been judged by their readers
        if one.least is None or one.num_drafted is None or not one.is_enough:
            continue
        found = ceiling(one.accept_length, one.num_drafted, one.least, one.source)
        if found is not None:
            yield seen(one.source, found, "ceiling", refutes=REFUTES)
