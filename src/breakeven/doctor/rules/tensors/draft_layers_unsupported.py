"""The drafter has more layers than this engine serves rightly.

Detects: num_hidden_layers above 1 (or tensors of further layers) on SGLang; a number in config.json that the tensors do not bear
out.

Why it hurts: SGLang refuses it up to 0.5.11; later it applies hidden_norm where the trainer and vLLM apply input_layernorm, so
every layer from the second on computes something else, without a message. Drafters with latent attention have exactly one layer
there.

Evidence: num_hidden_layers; the tensors' layers.

Remedy: serve it with vLLM, or train a head of one layer.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told
from breakeven.engines.drafter_facts import drafter_fact


def check(evidence: Evidence) -> Iterator[Told]:
    draft = evidence.draft
    assert draft is not None
    count, held = draft.number("num_hidden_layers"), draft.num_layers_held
    if draft.method != "eagle3" or count is None or not held:
        return
    told = (str(draft.setting("num_hidden_layers")), f"the tensors make up {held} layer{'s' if held > 1 else ''}")
    if count != held:
        yield Fault(
            severity="error",
            confidence="high",
            title=f"config.json gives the drafter {count} layers, its tensors make up {held}",
            evidence=told,
            remedy=f'Set "num_hidden_layers": {held}.',
            symptoms=Symptoms(
                vllm="not known" if count > held else "load-error",
                sglang="load-error"
                if drafter_fact("sglang", "several layers", evidence.version).settled == "refused"
                else "not known",
            ),
            repairable=True,
        )
    elif count > 1 and "sglang" in evidence.engines:
        known = drafter_fact("sglang", "several layers", evidence.version)
        refused = draft.is_latent or known.settled == "refused"
        yield Fault(
            severity="error" if evidence.engine == "sglang" else "warning",
            confidence="high",
            title=f"SGLang {'refuses' if refused else 'computes otherwise'} drafters of {count} layers",
            evidence=(*told, *known.sources),
            remedy="Serve it with vLLM, or train a head of one layer.",
            symptoms=Symptoms(vllm="nothing", sglang="load-error" if refused else "all-positions-lower"),
        )
