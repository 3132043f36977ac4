"""Chats are rendered with another template than in training.

Detects: the template in the target's folder (or the one of --chat-template) against the hash in the drafter's provenance.json, or
against the template that lies in the drafter's own folder.

Why it hurts: role marks, thinking tags and system prompts decide what the target writes. A drafter that never saw them predicts
the wrong continuation at every turn's beginning, and all positions are accepted less.

Evidence: the two hashes, and the first line that differs where both texts are there.

Remedy: serve the template of the training, or train with the one served.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from breakeven.doctor.beside import chat_template, text_hash, trained_for
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import both
from breakeven.doctor.told import CannotDecide, Fault, Told

MAX_BYTES = 1_000_000


def check(evidence: Evidence) -> Iterator[Told]:
    draft, target = evidence.draft, evidence.target
    assert draft is not None
    assert target is not None
    served, source = _served(evidence)
    own = chat_template(draft.folder.path)
    stated = trained_for(draft.folder.path, draft.folder.config)
    trained = (
        stated.template_sha256 if stated is not None and stated.template_sha256 else text_hash(own) if own is not None else None
    )
    if trained is None:
        return
    if served is None:
        if source:
            yield CannotDecide(
                question="Is the chat template that is served the one of the training?",
                evidence=(source,),
                provide="the file of --chat-template, readable from here",
            )
        return
    if text_hash(served) == trained:
        return
    recorded = stated is not None and stated.template_sha256 is not None
    where = f"{stated.source}.template_sha256" if stated is not None and recorded else "the template in the drafter's folder"
    yield Fault(
        severity="warning",
        confidence="high" if recorded else "low",
        title="The chat template that is served is not the one that the drafter was trained with"
        if recorded
        else "The drafter's folder carries another chat template than the one that is served",
        evidence=(f"{where}: {trained[:16]}", f"{source}: {text_hash(served)[:16]}", *(_difference(own, served) if own else ())),
        remedy="Serve the template of the training, or train on answers rendered with the one that is served.",
        symptoms=both("all-positions-lower"),
    )


def _served(evidence: Evidence) -> tuple[str | None, str]:
    assert evidence.target is not None
    flag = evidence.launch.flag("--chat-template") if evidence.launch is not None else None
    if flag and isinstance(flag.value, str):
        file = Path(flag.value)
        try:
            if file.is_file() and file.stat().st_size <= MAX_BYTES:
                return file.read_text(encoding="utf-8"), str(flag)
        except (OSError, ValueError):
            pass
        return None, str(flag)
    return chat_template(evidence.target.path), f"template of {evidence.target.path.name}"


def _difference(own: str, served: str) -> Iterator[str]:
    for number, (mine, theirs) in enumerate(zip_longest(own.splitlines(), served.splitlines(), fillvalue=""), 1):
        if mine != theirs:
            yield f"line {number}: {mine[:60]!a} in the drafter's folder, {theirs[:60]!a} served"
            return
