"""What was asked of an engine held against what it says it does: differences as findings.

Facts carry the names of `Arm`'s fields where the two mean the same. A fact that an engine does not tell is not judged.
"""

from __future__ import annotations

from collections.abc import Mapping

from breakeven.checkpoints.folder import open_folder
from breakeven.engines.base import Arm, Speculation
from breakeven.errors import CheckpointError
from breakeven.findings import Finding

__all__ = ["resolved_findings"]

_MOVES_EVERYTHING = ("max_running", "num_draft", "method", "drafts_follow_batch")
_LAYERS = "eagle_aux_hidden_state_layer_ids"


def resolved_findings(arm: Arm, facts: Mapping[str, object]) -> list[Finding]:
    """Differences between the plan's arm and the facts its engine told after start-up."""
    return [*_differences(arm, facts), *_layers(arm, facts), *_kernels(arm, facts), *_unverified(arm, facts)]


def _differences(arm: Arm, facts: Mapping[str, object]) -> list[Finding]:
    if arm.url is not None:
        return []  # somebody else's settings, which the plan does not claim to know
    asked: dict[str, object] = {
        "max_running_requests": arm.max_running_requests,
        "context_length": arm.context_length,
        "dtype": None if arm.dtype == "auto" else arm.dtype,
        "quantization": arm.quantization,
    }
    if not arm.command:
        asked |= {"tensor_parallel": arm.tensor_parallel, "pipeline_parallel": arm.pipeline_parallel}
    if arm.speculation is not None:
        asked |= {"num_draft_tokens": arm.speculation.num_draft_tokens, "method": arm.speculation.method}
        if arm.speculation.schedule:
            asked["drafts_follow_batch"] = True
    different = [
        f"{key}: asked for {value}, the engine says {facts[key]}"
        for key, value in asked.items()
        if value is not None and facts.get(key) is not None and facts[key] != value
    ]
    if not different:
        return []
    return [
        Finding(
            code="engine-settings-differ",
            severity="error" if any(line.startswith(_MOVES_EVERYTHING) for line in different) else "warning",
            confidence="high",
            title=f"{arm.name}: the engine does not do what the plan asked for",
            evidence=tuple(different),
            remedy="The engine adjusted it, or extra_flags overrode it. Mend the plan, so that arms differ in speculation only.",
        )
    ]


def _layers(arm: Arm, facts: Mapping[str, object]) -> list[Finding]:
    """Layers that the engine takes states from, against those the head was trained on: the most common dead drafter."""
    used = facts.get("auxiliary_layers")
    speculation = arm.speculation
    if not isinstance(used, list) or speculation is None or speculation.drafter is None:
        return []
    found = _trained_layers(speculation)
    if found is None or sorted(found[0]) == sorted(used):
        return []
    trained, own_key = found
    source = facts.get("auxiliary_layers_source", "log")
    return [
        Finding(
            code="auxiliary-layers-differ",
            severity="error",
            confidence="high" if own_key else "medium",
            title=f"{arm.name}: the engine feeds the drafter from other layers than it was trained on",
            evidence=(f"layers in use: {used} ({source})", f"{speculation.drafter}/config.json: {trained}"),
            remedy=(
                f"Put the layers under {_LAYERS} at the top level of the drafter's config.json, where every vLLM runner reads them "
                "(the nested eagle_config is SGLang's, and counts layer outputs)."
            ),
        )
    ]


def _trained_layers(speculation: Speculation) -> tuple[list[int], bool] | None:
    """As vLLM counts them (inputs of layers), and whether the key is vLLM's own. SGLang's nested key counts outputs, one lower."""
    assert speculation.drafter is not None
    try:
        config = open_folder(speculation.drafter).config
    except CheckpointError:
        return None  # moved since; what was measured stands
    nested = config.get("eagle_config")
    own = _layer_list(config.get(_LAYERS))
    if own is not None:
        return own, True
    inner = _layer_list(nested.get(_LAYERS)) if isinstance(nested, dict) else None
    return None if inner is None else ([layer + 1 for layer in inner], False)


def _layer_list(value: object) -> list[int] | None:
    if not isinstance(value, list) or not value or not all(isinstance(layer, int) for layer in value):
        return None
    return value


def _kernels(arm: Arm, facts: Mapping[str, object]) -> list[Finding]:
    """Kernels that somebody put in place of the engine's own: what is measured through them is not the engine's."""
    reason = facts.get("unreleased_kernels")
    if not reason:
        return []
    return [
        Finding(
            code="unreleased-kernels",
            severity="warning",
            confidence="high",
            title=f"{arm.name}: its figures are not those of {arm.engine}, whose kernels were replaced",
            evidence=(str(reason),),
            remedy=(
                f"Speeds and accept lengths of this arm show that the parts work together, nothing of what {arm.engine} is worth."
                " Install the kernels that its release asks for and measure again."
            ),
        )
    ]


def _unverified(arm: Arm, facts: Mapping[str, object]) -> list[Finding]:
    doubt = facts.get("unverified")
    if not doubt:
        return []
    return [
        Finding(
            code="release-unverified",
            severity="info",
            confidence="high",
            title=f"{arm.name}: Breakeven has not been checked with this release of {arm.engine}",
            evidence=(str(doubt),),
            remedy="Flags and counters are taken to be those of the nearest release that was checked.",
        )
    ]
