"""norm_output does not mean the same to SpecForge and to the engines.

Detects: norm_output true in a folder that SpecForge may have written.

Why it hurts: engines feed the state after the norm back into the next draft. SpecForge's flag says that the head reads a normed
state while training feeds back the one before the norm. Served so, the first position would be normal and later ones fall.

Evidence: the key; the layout. No run has shown the effect yet, so this is a question, not a fault.

Remedy: compare acceptance by position with the training's; if it falls from the second position on, set norm_output false.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.told import CannotDecide, Told


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    flag = draft.setting("norm_output")
    by_specforge = "eagle_config" in draft.folder.config and not draft.is_speculators
    if draft.method != "eagle3" or flag.value is not True or not by_specforge:
        return
    yield CannotDecide(
        question="Does norm_output mean that the normed state is fed back (engines), or that only the head sees it (SpecForge)?",
        evidence=(str(flag), "config.json: eagle_config, as SpecForge writes it"),
        provide="acceptance by position (--log or --metrics): a steep fall after the first speaks for SpecForge's meaning",
    )
