"""The drafter lacks tensors that it needs.

Detects: a matrix or norm of the head that is in no file.

Why it hurts: neither engine complains about what is missing. SGLang leaves it as it was allocated, vLLM as it was initialised:
drafts are noise, the accept length is 1.00, the server looks healthy.

Evidence: the names that are not there.

Remedy: export the drafter again, and look at what the exporter warned about.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.expected import misnamed, needed_roles, stem
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    if draft.method != "eagle3":
        return
    present = {stem(role) for role in draft.by_role} | {
        stem(wanted).replace("midlayer.", "layer.") for _, wanted in misnamed(draft)
    }
    missing = [role for role in needed_roles(draft) if role not in present]
    if draft.setting("use_input_layernorm_in_first_layer").value is False or _without_input_norm(evidence):
        missing = [role for role in missing if role != "layer.input_layernorm"]
    if not missing:
        return
    files = sorted({info.file.name for info in draft.tensors.values()})[:3]
    yield Fault(
        severity="error",
        confidence="high",
        title=f"Of the tensors that the head needs, {len(missing)} {'are' if len(missing) > 1 else 'is'} in no file",
        evidence=(f"not in {', '.join(files)}: {', '.join(role.replace('layer.', 'midlayer.') for role in missing[:8])}",),
        remedy="Export the drafter again; what is missing was lost on the way, and no engine says so.",
        symptoms=both("floor"),
    )


def _without_input_norm(evidence: Evidence) -> bool:
    """Model-Optimizer can train without the first layer's input norm, and says so."""
    assert evidence.draft is not None
    nested = evidence.draft.folder.config.get("eagle_config")
    return isinstance(nested, dict) and nested.get("use_input_layernorm_in_first_layer") is False
