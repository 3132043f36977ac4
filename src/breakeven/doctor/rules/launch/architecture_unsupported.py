"""The engine has no model class for the drafter's architecture.

Detects: `architectures` (or the speculators format) that this engine, in this release, cannot build.

Why it hurts: the server does not start, or builds a plain model of the same family whose tensors do not fit.

Evidence: the name in config.json against the classes of the engine. SGLang knows LlamaForCausalLMEagle3 and, from 0.5.12.post1,
Eagle3DeepseekV2ForCausalLM, and cannot read the speculators format. vLLM puts Eagle3 in front of names without it, knows drafters
with latent attention from 0.20.2, and builds speculators folders only with llama or qwen3 layers.

Remedy: write the architecture that the tensors are (a conversion of the configuration, not of the weights), or take a newer
release.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told
from breakeven.engines.drafter_facts import drafter_fact

_SGLANG = ("LlamaForCausalLMEagle3", "Eagle3DeepseekV2ForCausalLM")
_VLLM = (
    "Eagle3LlamaForCausalLM", "LlamaForCausalLMEagle3", "Eagle3Qwen3ForCausalLM", "Eagle3MiniMaxM2ForCausalLM",
    "Eagle3Qwen2_5vlForCausalLM", "Eagle3Qwen3vlForCausalLM", "Eagle3DeepseekV2ForCausalLM", "Eagle3DeepseekV3ForCausalLM",
    "PEagleDraftModel", "PeagleLlamaForCausalLM", "PeagleQwen3ForCausalLM",
)  # fmt: skip
_SPECULATORS_LAYERS = ("llama", "qwen3")


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    if draft.method != "eagle3" or evidence.engine is None:
        return
    problem = _on_vllm(evidence) if evidence.engine == "vllm" else _on_sglang(evidence)
    if problem is None:
        return
    wanted = "Eagle3DeepseekV2ForCausalLM" if draft.is_latent else "LlamaForCausalLMEagle3"
    yield Fault(
        severity="error",
        confidence="medium" if "unverified" in problem else "high",
        title=f"{evidence.engine_text} cannot build this drafter: {problem}",
        evidence=(f"config.json: architectures is {draft.architecture or 'absent'}",),
        remedy=f'Convert config.json to the plain format with "architectures": ["{wanted}"], or take a release that knows it.',
        symptoms=Symptoms(vllm="load-error") if evidence.engine == "vllm" else Symptoms(sglang="load-error"),
    )


def _on_vllm(evidence: Evidence) -> str | None:
    draft = evidence.draft
    assert draft is not None
    if draft.is_latent and drafter_fact("vllm", "latent drafters", evidence.version).settled == "refused":
        return "drafters with latent attention came with 0.20.2"
    if draft.is_speculators:
        layer = str(draft.setting("model_type").value or "llama")
        nested = draft.folder.config.get("transformer_layer_config")
        layer = str(nested.get("model_type", "llama")) if isinstance(nested, dict) else layer
        return None if layer in _SPECULATORS_LAYERS else f"a speculators folder with {layer!a} layers; llama and qwen3 are known"
    name = draft.architecture
    full = name if name.startswith("Eagle3") or name.endswith("Eagle3") or name in _VLLM else f"Eagle3{name}"
    return None if full in _VLLM or not name else f"no class {full!a} in the releases that were read"


def _on_sglang(evidence: Evidence) -> str | None:
    draft = evidence.draft
    assert draft is not None
    if draft.is_speculators:
        return "the speculators format is not read, its layer's configuration stands one level down"
    if draft.architecture == _SGLANG[1] and drafter_fact("sglang", "latent drafters", evidence.version).settled == "refused":
        return "drafters with latent attention came with 0.5.12.post1"
    return None if draft.architecture in _SGLANG else f"no class {draft.architecture!a} for EAGLE-3 heads"
