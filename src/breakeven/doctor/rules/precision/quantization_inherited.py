"""The drafter is quantized along with the target.

Detects: SGLang started with --quantization for the target and without --speculative-draft-model-quantization, and an unquantized
drafter; or vLLM's "quantization" in the speculative configuration of such a drafter.

Why it hurts: SGLang's default for the drafter is the target's quantization. Formats whose parameters have other names cannot take
the drafter's plain tensors: it fails to load, or they are dropped and nothing is accepted. Formats that quantize at load time
only cost some acceptance.

Evidence: the flags; the drafter has no quantization_config and its matrices are plain.

Remedy: --speculative-draft-model-quantization unquant (0.5.8 and later); releases up to 0.5.5 cannot.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.evidence import Evidence
from breakeven.doctor.quantization import is_plain
from breakeven.doctor.signs import Symptoms
from breakeven.doctor.told import Fault, Told
from breakeven.engines.launch_flags import choose_flag

# Quantize plain weights while loading them.
_AT_LOAD = ("fp8", "mxfp8", "torchao", "int4wo", "int8wo", "bitsandbytes")
OPT_OUT = "unquant"


def check(evidence: Evidence) -> Iterator[Told]:
    launch, draft = evidence.launch, evidence.draft
    assert launch is not None
    assert draft is not None
    if not launch.speculates or not is_plain(draft):
        return
    if launch.engine == "vllm":
        flag, own = launch.spec("quantization"), None
    else:
        flag, own = launch.quantization, launch.flag("--speculative-draft-model-quantization")
        flag = own if own else flag
    if not flag or flag.value == OPT_OUT:
        return
    at_load = str(flag.value).lower() in _AT_LOAD
    remedy = 'Remove "quantization" from --speculative-config.'
    if launch.engine == "sglang":
        name = choose_flag("sglang", "drafter's quantization", evidence.version).name
        remedy = f"Add {name} {OPT_OUT}." if name else "This release cannot leave the drafter out: take 0.5.8 or later."
    yield Fault(
        severity="warning" if at_load else "error",
        confidence="high" if not at_load else "medium",
        title=f"The unquantized drafter is loaded as {flag.value}"
        + (", which SGLang takes over from the target" if not own and launch.engine == "sglang" else ""),
        evidence=(str(flag), "config.json: no quantization_config, and the drafter's matrices are plain"),
        remedy=remedy,
        symptoms=Symptoms(
            vllm="all-positions-lower" if at_load else "load-error", sglang="all-positions-lower" if at_load else "load-error"
        ),
    )
