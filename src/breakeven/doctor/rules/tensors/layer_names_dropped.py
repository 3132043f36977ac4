"""The layer's tensors are called layers.0, which this release of SGLang does not look for.

Detects: layers.0.* in a drafter for SGLang before 0.5.12.

Why it hurts: there the layer is called midlayer, and other names are passed over without a word: attention and MLP stay as
allocated and nothing is accepted. The same folder works in later releases.

Evidence: the names; SGLang's models/llama_eagle3.py by release.

Remedy: rename layers.0. to midlayer. (every engine reads that), or SGLang 0.5.12.post1 and later.
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
    if evidence.engine != "sglang" or draft.method != "eagle3" or draft.is_latent:
        return
    names = [name for name in draft.tensors if name.removeprefix("model.").startswith("layers.0.")]
    known = drafter_fact("sglang", "layers.0 names", evidence.version)
    if not names or evidence.version is None or not known.may_be("dropped"):
        return
    settled = known.settled == "dropped"
    yield Fault(
        severity="error" if settled else "warning",
        confidence="high" if settled else "low",
        title=f"{evidence.engine_text} {'drops' if settled else 'may drop'} the layer's {len(names)} tensors: it wants midlayer",
        evidence=(f"{draft.tensors[names[0]].file.name}: {names[0]}", *known.sources, *((known.doubt,) if known.doubt else ())),
        remedy="Rename layers.0. to midlayer., which all releases of both engines read, or take SGLang 0.5.12.post1 or later.",
        symptoms=Symptoms(vllm="nothing", sglang="floor"),
        repairable=True,
    )
