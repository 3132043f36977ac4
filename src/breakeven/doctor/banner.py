"""A launch read back from a server's start-up log, where no command was given: SGLang and vLLM print their arguments there.

Only what is printed as given is taken; defaults that a release fills in would look like choices of the user, so arguments are kept
to those that say which drafter runs and how.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from breakeven.doctor.launch import Launch
from breakeven.doctor.start_up import StartUp
from breakeven.readers.reading import Reading

__all__ = ["launch_of_banner"]

_SGLANG = {
    "speculative_algorithm": "--speculative-algorithm",
    "speculative_draft_model_path": "--speculative-draft-model-path",
    "speculative_num_steps": "--speculative-num-steps",
    "speculative_eagle_topk": "--speculative-eagle-topk",
    "speculative_num_draft_tokens": "--speculative-num-draft-tokens",
    "speculative_draft_model_quantization": "--speculative-draft-model-quantization",
    "max_running_requests": "--max-running-requests",
    "quantization": "--quantization",
    "tp_size": "--tp-size",
}
_DRAFTER = "speculative_draft_model_path"
_ABSENT = frozenset({"None", "null", ""})
SOURCE = "start-up log"


def launch_of_banner(logs: Sequence[Reading | StartUp]) -> Launch | None:
    """The launch that all speculating logs agree on; None where there is none, or they differ."""
    found = [launch for log in logs if (launch := _launch(log.engine, log.settings)) is not None]
    return found[0] if found and all(one == found[0] for one in found[1:]) else None


def _launch(engine: str, stated: Mapping[str, str]) -> Launch | None:
    settings = {name: value for name, value in stated.items() if value not in _ABSENT}
    if engine == "sglang" and "speculative_algorithm" in settings:
        flags: dict[str, object] = {flag: settings[name] for name, flag in _SGLANG.items() if name in settings}
        if stated.get(_DRAFTER) in _ABSENT:
            flags[_SGLANG[_DRAFTER]] = None  # printed as not given, which is more than not printed
        return Launch(engine="sglang", target=settings.get("model_path"), flags=flags, source=SOURCE, is_whole=False)
    if engine == "vllm" and "method" in settings and settings.get("num_speculative_tokens", "").isdigit():
        config = {"method": settings["method"], "num_speculative_tokens": int(settings["num_speculative_tokens"])}
        flags = {"--speculative-config": json.dumps(config)}
        flags |= {"--max-num-seqs": settings["max_num_seqs"]} if "max_num_seqs" in settings else {}
        flags |= {"--quantization": settings["quantization"]} if "quantization" in settings else {}
        return Launch(engine="vllm", target=None, flags=flags, source=SOURCE, is_whole=False)
    return None
