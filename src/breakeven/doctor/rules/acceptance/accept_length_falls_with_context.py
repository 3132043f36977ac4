"""The accept length falls with the length of the context.

Detects: lower accept lengths on lines with more tokens a request.

Why it hurts: positions that the drafter was not trained at, or cannot represent: long requests get no speedup, or lose.

Evidence: accept lengths by tokens a request. An abrupt fall at one length is a limit, a slow one is training on short text.

Remedy: max_position_embeddings and RoPE of the drafter against the target's; training at the length that is served.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.reported import reported, seen
from breakeven.doctor.told import Told


def check(evidence: Evidence) -> Iterator[Told]:
    for source, finding in reported(evidence, "accept-length-falls-with-context"):
        yield seen(source, finding, "falls-with-context")
