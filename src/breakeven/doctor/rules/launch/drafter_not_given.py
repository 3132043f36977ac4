"""Speculation is asked for, but no drafter.

Detects: a method that needs a drafter's folder, with none named: SGLang's EAGLE3, STANDALONE and DFLASH (and EAGLE, where the
target is known to hold no draft layers of its own); vLLM's eagle, eagle3, draft_model, medusa and the like, or no method at all.

Why it hurts: SGLang takes the target itself for the drafter, loads it twice, and dies at start over an attribute that a head has
and the target has not (set_embed, hot_token_id), in every release read. vLLM refuses the configuration.

Evidence: the flags, or the arguments that a start-up log repeats (sglang issue 36528; configs/model_config.py:
`model_path or server_args.model_path`; vllm config/speculative.py).

Remedy: name the head's folder; without a head, n-gram drafting or the target's own MTP layers need none.
"""

from __future__ import annotations

from collections.abc import Iterator

from breakeven.doctor.drafter import language_config, whole
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.signs import both
from breakeven.doctor.told import Fault, Told

_NEEDING = {
    "sglang": ("EAGLE3", "STANDALONE", "DFLASH"),
    "vllm": ("eagle", "eagle3", "draft_model", "medusa", "mlp_speculator", "dflash", "dspark"),
}
_FLAGS = {"sglang": "--speculative-draft-model-path", "vllm": '"model" in --speculative-config'}
_OWN_LAYERS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")


def check(evidence: Evidence) -> Iterator[Told]:
    launch = evidence.launch
    assert launch is not None
    method, drafter = launch.method, launch.drafter
    if drafter.value or (not launch.is_whole and not drafter):
        return  # of a log's banner, only what is printed counts
    if launch.flag("--enable-return-aux-hidden-states") or str(launch.target or "").lower() in ("none", "dummy"):
        return  # SGLang then only hands states out, and drafts nothing
    without_own = launch.engine == "sglang" and method.value == "EAGLE" and _holds_no_draft_layers(evidence)
    unnamed = launch.engine == "vllm" and bool(method) and method.value is None
    if method.value not in _NEEDING[launch.engine] and not without_own and not unnamed:
        return
    flag = _FLAGS[launch.engine]
    happens = (
        "SGLang takes the target itself for the drafter and dies at start" if launch.engine == "sglang" else "vLLM does not start"
    )
    yield Fault(
        severity="error",
        confidence="high",
        title=f"{method.value or 'Speculation'} needs a drafter and none is named: {happens}",
        evidence=(
            str(method),
            str(drafter) if drafter else f"{launch.source}: no {flag}",
            *(("the target's config.json names no draft layers of its own",) if without_own else ()),
        ),
        remedy=f"Name the head's folder or hub id with {flag}. Without a head: n-gram drafting, or the target's own MTP layers if "
        "it has some.",
        symptoms=both("load-error"),
    )


def _holds_no_draft_layers(evidence: Evidence) -> bool:
    if evidence.target is None:
        return False
    config = language_config(evidence.target)
    tensors = evidence.target.tensors
    return not any(whole(config.get(key)) for key in _OWN_LAYERS) and not any("mtp" in name or "nextn" in name for name in tensors)
