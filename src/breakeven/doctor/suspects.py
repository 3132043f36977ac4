"""What can be behind each sign, likeliest first: which rules look for it, and the cheapest check that tells suspects apart.

Compiled from public reports of served drafters. A suspect without rules cannot be seen in files and flags; one whose rules were all
checked and found nothing is ruled out as far as files and flags can tell.
"""

from __future__ import annotations

from dataclasses import dataclass

from breakeven.doctor.signs import Sign

__all__ = ["CHECKS", "SUSPECTS", "Suspect"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """`of_heads`: only a trained head can have it, no MTP layers of the target's own and no whole small model."""

    name: str
    codes: tuple[str, ...] = ()
    of_heads: bool = False


_METHOD = Suspect(
    name="the method against the drafter", codes=("algorithm-mismatch", "algorithm-against-name", "method-guessed-from-path")
)
_DROPPED = Suspect(
    name="tensors dropped or missing at loading",
    codes=(
        "tensors-misnamed",
        "tensors-missing",
        "tensors-unknown",
        "layer-names-dropped",
        "lm-head-absent",
        "lm-head-tied",
        "lm-head-random",
    ),
)
_MAP = Suspect(
    name="the vocabulary map",
    codes=("vocabulary-map-absent", "vocabulary-map-absolute", "vocabulary-map-at-odds", "vocabulary-map-out-of-range"),
    of_heads=True,
)
_LAYERS = Suspect(
    name="the auxiliary layers",
    codes=("layers-defaulted", "layers-off-by-one", "layers-out-of-range", "layer-keys-contradict", "layer-convention-unclear"),
    of_heads=True,
)
_NORMS = Suspect(
    name="norm flags",
    codes=("norm-before-residual-dropped", "norm-before-fc-unsupported", "fc-norm-unsupported", "norm-output-unsupported"),
    of_heads=True,
)
_QUANTIZED = Suspect(
    name="the drafter's own quantization",
    codes=("quantization-inherited", "quantization-announced", "quantization-parts-ignored", "quantization-unannounced"),
)
_ROTATED = Suspect(name="a rotated target", codes=("target-rotated",))
_WEIGHTS = Suspect(name="weights that are untrained or not finite", codes=("untrained-head", "weights-not-finite"))
_BASE = Suspect(name="a drafter made for another model", codes=("base-model-mismatch", "target-size-differs", "target-changed"))
_TEMPLATE = Suspect(name="the chat template", codes=("chat-template-differs",))
_ROPE = Suspect(
    name="RoPE settings", codes=("rope-theta-differs", "rope-scaling-differs", "rope-layout-differs", "rope-contradictory")
)
_LIMIT = Suspect(name="the drafter's position limit", codes=("position-limit",))
_DOMAIN = Suspect(name="traffic unlike the training data", codes=("vocabulary-coverage",))
_WEAK = Suspect(name="too little training", codes=("training-acceptance-low",))

SUSPECTS: dict[Sign, tuple[Suspect, ...]] = {
    "floor": (_METHOD, _DROPPED, _MAP, _LAYERS, _NORMS, _QUANTIZED, _ROTATED, _WEIGHTS),
    "first-position-only": (
        Suspect(name="positions, mask or recurrent state of the engine's draft steps"),
        Suspect(name="the attention backend of the drafter"),
    ),
    "steep-decay": (_NORMS, Suspect(name="a head trained for one step only")),
    "all-positions-lower": (_LAYERS, _NORMS, _BASE, _TEMPLATE, _QUANTIZED, _ROPE, _DOMAIN, _WEAK),
    "falls-with-batch": (
        Suspect(name="the drafter's attention backend"),
        Suspect(name="CUDA graphs of the drafter at large batches"),
        Suspect(name="data-parallel attention"),
    ),
    "falls-with-context": (_LIMIT, _ROPE, Suspect(name="training on short text")),
    "falls-with-time": (
        Suspect(name="cached prefixes without the drafter's keys and values"),
        _LIMIT,
        Suspect(name="state of the draft cache"),
        Suspect(name="traffic that changed"),
    ),
    "falls-after-cache-reuse": (Suspect(name="a cache that restores the target's keys and values only"),),
    "engines-differ": (_LAYERS, _NORMS, Suspect(name="an attention backend"), Suspect(name="prompts that differ")),
    "ceiling": (
        Suspect(name="NaN logits or endless repetition"),
        Suspect(name="random or copied prompts"),
        Suspect(name="forced acceptance"),
    ),
    "cost": (
        Suspect(name="graphs off or too small", codes=("graphs-off", "graphs-too-small", "cuda-graph-off")),
        Suspect(name="a tree too wide", codes=("tree-too-wide",)),
        Suspect(name="experts woken by verification", codes=("experts-woken",)),
        Suspect(name="a drafter too large", codes=("drafter-too-large",)),
        Suspect(name="a saturated target", codes=("target-saturated",)),
        Suspect(name="collectives"),
    ),
    "queueing": (
        Suspect(name="a cap on running requests", codes=("running-requests-capped", "admission-capped")),
        Suspect(name="a KV cache too small"),
    ),
}

# Where no cause was found in files and flags: the one check that splits the suspects that remain.
CHECKS: dict[Sign, str] = {
    "floor": "Replay the head offline on the target's own answers (breakeven eval --draft DIR --target DIR): if drafts are "
    "accepted there, the engine loads or feeds it wrongly; if not, the folder is wrong.",
    "first-position-only": "Replay the head offline on the same text (breakeven eval): if positions after the first are accepted "
    "there, the engine is at fault, else the head.",
    "steep-decay": "Replay the head offline (breakeven eval): if the curve is flat there, the engine hands on the wrong state; if "
    "it falls as steeply, the head was trained for too few steps.",
    "all-positions-lower": "Replay the head offline on answers of this traffic (breakeven eval): if it reaches there what was "
    "expected, serving is at fault (layers, norms, template); if it is as low, training or traffic is.",
    "falls-with-batch": "Serve the same prompts at a small and a large batch with another attention backend of the drafter: if the "
    "fall is gone, it is the backend; if it stays, repeat without CUDA graphs.",
    "falls-with-context": "Read the accept length just below and just above the drafter's max_position_embeddings: an abrupt fall "
    "there is the limit, a slow one is training on short text.",
    "falls-with-time": "Flush the prefix cache once: if the accept length comes back, it is the draft cache, else the traffic.",
    "falls-after-cache-reuse": "Flush the cache once more and see the accept length come back; then serve the same prompts with "
    "the host cache off: it must not fall there.",
    "engines-differ": "Serve the same prompts at one request in both: what still differs there is not a matter of batch or "
    "traffic; then change one setting at a time, the attention backend first.",
    "ceiling": "Read ten answers: repetition or one character over and over is NaN logits, sensible text means forced acceptance "
    "or prompts that hold their answers.",
    "cost": "Force acceptance at one load with graphs on, topk 1 and one draft (breakeven bench, forced arm): what the round costs "
    "then is verification alone, and what more drafts add is the drafter.",
    "queueing": "Set the same limit of running requests on both servers and compare again below it.",
}  # fmt: skip
