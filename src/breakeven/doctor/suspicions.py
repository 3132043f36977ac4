"""Popular suspicions, and what measurements say about them: stated where the signs speak against one.

Quantization. The same drafter on the same prompts, target quantized and not (`public_figures`): weight-only INT4 and FP8 cost 0 to
3 % of the accepted drafts, 4-bit activations or a badly scaled KV cache up to 30 %. What quantization can do to reach 1.00 is
structural: a drafter that inherits it, names that a loader drops, scales that are missing, a rotated target.
"""

from __future__ import annotations

from breakeven.checkpoints.headers import printable
from breakeven.doctor.drafter import language_config
from breakeven.doctor.evidence import Evidence
from breakeven.doctor.public_figures import QUANTIZATION_LOSSES, QuantizationLoss, quantization_loss

__all__ = ["not_quantization", "not_quantization_by_loss", "not_training"]

_WORST, _WEIGHT_ONLY = QUANTIZATION_LOSSES
_FIGURES = (
    f"weight-only INT4 or FP8 of the target costs {_WEIGHT_ONLY.low * 100:.0f} to {_WEIGHT_ONLY.high * 100:.0f} % of the accepted "
    f"drafts, 4-bit activations or a badly scaled KV cache at most {_WORST.high * 100:.0f} %"
)


def not_quantization(evidence: Evidence, what: str) -> tuple[str, ...]:
    """Why the target's quantization does not explain `what`, which takes everything, or everything from one position on."""
    method = _quantization(evidence)
    of = f" ({method})" if method else ""
    return (f"Quantization of the target{of}: {_FIGURES}; it cannot explain {what}.",)


def not_quantization_by_loss(evidence: Evidence, share_lost: float) -> tuple[str, ...]:
    """The same where a part of the accepted drafts is missing; nothing where quantization can cost as much."""
    method = _quantization(evidence)
    known: QuantizationLoss | None = quantization_loss(method)
    limit = known.high if known is not None else _WORST.high
    if share_lost <= limit:
        return ()
    of = f" ({method})" if method else ""
    return (
        f"Quantization of the target{of}: {_FIGURES}; {share_lost * 100:.0f} % are missing here, so it is not the whole cause.",
    )


def not_training(what: str) -> tuple[str, ...]:
    weak = "heads from 5000 samples reach accept length 1.5, and a weak head's acceptance falls bit by bit over positions"
    return (f"Too little training: {weak}; it does not explain {what}.",)


def _quantization(evidence: Evidence) -> str:
    """The target's, by its configuration, the launch, the log or its name; empty where nothing says."""
    if evidence.target is not None:
        for config in (evidence.target.config, language_config(evidence.target)):
            table = config.get("quantization_config")
            if isinstance(table, dict):
                words = [table.get(key) for key in ("quant_algo", "quant_method", "format") if isinstance(table.get(key), str)]
                bits = table.get("bits")
                text = " ".join([*map(str, words), *([f"{bits}-bit"] if type(bits) is int and 0 < bits < 33 else [])])
                if text.isprintable() and text:
                    return text[:60]
    if evidence.launch is not None and evidence.launch.quantization:
        return str(evidence.launch.quantization.value)[:40]
    stated = evidence.log_facts.get("quantization")
    if isinstance(stated, str) and stated not in ("None", "auto"):
        return stated[:40]
    for one in evidence.observed:
        if one.settings.get("quantization", "None") not in ("None", "auto"):
            return one.settings["quantization"][:40]
    names = [str(evidence.target.path.name)] if evidence.target is not None else []
    names += [evidence.launch.target] if evidence.launch is not None and evidence.launch.target else []
    return next((printable(name)[:60] for name in names if quantization_loss(name) is not None), "")
