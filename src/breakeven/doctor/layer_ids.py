"""Which layers an engine would take a drafter's states from, and which the drafter was trained on.

Ids count here as vLLM does: id i is the residual stream *entering* layer i, which is the output of layer i - 1. SGLang's key counts
outputs, so it is one lower for the same state. Neither key names its convention; what was trained on is inferred, with a doubt.
"""

from __future__ import annotations

from dataclasses import dataclass

from breakeven.checkpoints.folder import ModelFolder
from breakeven.doctor.drafter import Drafter, Setting, language_config, whole
from breakeven.doctor.evidence import Evidence
from breakeven.engines.drafter_facts import drafter_fact

__all__ = ["InUse", "Trained", "default_ids", "ids_in_use", "ids_trained_on", "read_ids"]

MAX_IDS = 64
# Targets whose hook in SGLang follows the rule of latent attention.
_LATENT_TARGETS = ("deepseek", "kimi")


@dataclass(frozen=True, slots=True, kw_only=True)
class InUse:
    """`ids` as layer inputs; `defaulted`: the engine found no ids where it looks. `doubt` is empty where the release is settled."""

    ids: tuple[int, ...]
    source: str
    defaulted: bool = False
    doubt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """`ids` as layer inputs."""

    ids: tuple[int, ...]
    why: str


def read_ids(setting: Setting) -> tuple[int, ...] | None:
    """The list under a key, where it is one of a few whole numbers."""
    value = setting.value
    if not isinstance(value, list) or not 0 < len(value) <= MAX_IDS:
        return None
    return tuple(value) if all(type(one) is int and -1 <= one < 1 << 20 for one in value) else None


def default_ids(target: ModelFolder | None) -> tuple[int, ...] | None:
    """What both engines take without ids: 2, n // 2, n - 3 as layer inputs (vLLM models/interfaces.py, SGLang models/llama.py)."""
    num_layers = whole(language_config(target).get("num_hidden_layers")) if target is not None else None
    return (2, num_layers // 2, num_layers - 3) if num_layers is not None else None


def ids_trained_on(draft: Drafter, target: ModelFolder | None) -> tuple[Trained, ...]:
    """The layers whose states the drafter may have been trained on: two readings where the convention is open.

    The usual layers settle it where they fit one convention only. So does a first id of 1: no trainer reads what enters layer 1.
    """
    top, nested = draft.layer_ids
    outer, inner = read_ids(top), read_ids(nested)
    default = default_ids(target)
    if outer is not None and inner is not None:
        if outer == _up(inner):
            return (Trained(ids=outer, why=f"{top.key} and {nested.key} name the same states"),)
        return _readings(outer, top.key, default) if outer == inner else ()
    if outer is not None and draft.is_speculators:
        kept = _without_last(outer, draft)
        return (Trained(ids=kept, why=f"{top.key}, which speculators counts as layer inputs"),)
    if outer is not None:
        # trainers that write this key alone write it for vLLM; only the usual layers can show otherwise
        return _readings(outer, top.key, default)[:1]
    return _readings(inner, nested.key, default) if inner is not None else ()


def _readings(ids: tuple[int, ...], key: str, default: tuple[int, ...] | None) -> tuple[Trained, ...]:
    as_outputs = Trained(ids=_up(ids), why=f"{key}, counted as layer outputs")
    as_inputs = Trained(ids=ids, why=f"{key}, counted as layer inputs")
    if default is not None and ids[: len(default)] == default:
        return (as_inputs,)
    if ids[0] == 1 or (default is not None and _up(ids)[: len(default)] == default):
        return (as_outputs,)
    return (as_inputs, as_outputs)


def _up(ids: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(one + 1 for one in ids)


def ids_in_use(evidence: Evidence, engine: str) -> InUse | None:
    """What `engine` takes; None where the release leaves it open, or the target's depth would be needed and is not known."""
    draft = evidence.draft
    assert draft is not None
    logged = evidence.log_facts.get("auxiliary_layers")
    if engine == evidence.engine == "vllm" and isinstance(logged, list) and logged:
        source = evidence.log_facts.get("auxiliary_layers_source")
        return InUse(ids=tuple(logged), source="the server's log", defaulted=source == "model")
    return _vllm(evidence, draft) if engine == "vllm" else _sglang(evidence, draft)


def _vllm(evidence: Evidence, draft: Drafter) -> InUse | None:
    top, nested = draft.layer_ids
    if (outer := read_ids(top)) is not None:
        return InUse(ids=outer, source=f"config.json: {top.key}")
    inner = read_ids(nested)
    default = default_ids(evidence.target)
    if inner is None:
        return InUse(ids=default, source="vLLM's default: no ids in config.json", defaulted=True) if default else None
    runner, doubt = model_runner(evidence)
    reading = drafter_fact("vllm", "nested layer ids", evidence.version)
    if reading.settled == "never" or runner == "V2":
        why = "this release looks at the top level only" if reading.settled == "never" else "model runner V2 does not look there"
        return InUse(ids=default, source=f"vLLM's default: {why}", defaulted=True, doubt=doubt) if default else None
    if reading.settled == "by V1" and runner == "V1":
        return InUse(ids=inner, source=f"config.json: {nested.key}, taken as layer inputs", doubt=doubt)
    return None


def model_runner(evidence: Evidence) -> tuple[str | None, str]:
    """vLLM's model runner, V1 or V2, with the doubt; None where the release leaves it open."""
    if (logged := evidence.log_facts.get("runner")) in ("V1", "V2"):
        return str(logged), ""
    asked = evidence.launch.env.get("VLLM_USE_V2_MODEL_RUNNER") if evidence.launch is not None else None
    if asked in ("0", "1"):
        return ("V2" if asked == "1" else "V1"), ""
    known = drafter_fact("vllm", "model runner", evidence.version)
    if known.settled in ("V1", "V2"):
        return known.settled, known.doubt or ("" if known.settled == "V1" else "V1 is used where Triton is missing, as on CPUs")
    config = language_config(evidence.target) if evidence.target is not None else {}
    is_dense = not any(config.get(key) for key in ("num_experts", "n_routed_experts", "num_local_experts"))
    if known.settled == "V2 for dense Qwen3" and config:
        return ("V2" if config.get("model_type") == "qwen3" else "V1"), ""
    if known.settled == "V2 for dense targets" and config and is_dense:
        return "V2", ""
    return None, known.doubt


def _sglang(evidence: Evidence, draft: Drafter) -> InUse | None:
    _, nested = draft.layer_ids
    inner = read_ids(nested)
    if inner is None:
        default = default_ids(evidence.target)
        why = "no ids under eagle_config, the only place where SGLang looks"
        return InUse(ids=default, source=f"SGLang's default: {why}", defaulted=True) if default else None
    if evidence.target is None:
        return InUse(ids=_up(inner), source=f"config.json: {nested.key}, plus 1") if inner[0] == 1 else None
    model_type = str(language_config(evidence.target).get("model_type", ""))
    if not model_type.startswith(_LATENT_TARGETS):
        return InUse(ids=_up(inner), source=f"config.json: {nested.key}, plus 1")
    rule = drafter_fact("sglang", "layer ids, latent attention", evidence.version)
    if inner[0] == 1 or rule.settled == "outputs":
        return InUse(ids=_up(inner), source=f"config.json: {nested.key}, plus 1", doubt=rule.doubt)
    if rule.settled is not None:
        return InUse(ids=inner, source=f"config.json: {nested.key}, as they are", doubt=rule.doubt)
    return None


def _without_last(ids: tuple[int, ...], draft: Drafter) -> tuple[int, ...]:
    """Speculators appends the last layer for its own training targets; `fc` shows how many the drafter takes."""
    count = draft.num_auxiliary
    return ids[:count] if count is not None and len(ids) == count + 1 else ids
