"""How people spell engines, methods, plain decoding and switches in tables, and the one word that stands for each here."""

from __future__ import annotations

import re

__all__ = ["engine_and_release", "means_plain", "method_named", "switch"]

_PLAIN_WORDS = frozenset({"none", "plain", "base", "baseline", "no", "off", "vanilla", "autoregressive", "no drafter", "without"})
# Spellings of the methods, with everything but letters and digits left out.
_METHODS = {
    "ngram": "ngram",
    "promptlookup": "ngram",
    "suffix": "suffix",
    "eagle31": "eagle3",
    "eagle3": "eagle3",
    "eagle": "eagle",
    "nextn": "mtp",
    "mtp": "mtp",
    "draftmodel": "draft_model",
    "standalone": "draft_model",
    "dflash": "dflash",
    "medusa": "medusa",
}
_ENGINES = {
    "trtllm": "tensorrt-llm",
    "tensorrtllm": "tensorrt-llm",
    "llamacpp": "llama.cpp",
    "llamaserver": "llama.cpp",
    "sgl": "sglang",
}
_SWITCHES = {
    **dict.fromkeys(("true", "yes", "on", "enabled", "with"), "on"),
    **dict.fromkeys(("false", "no", "off", "disabled", "none", "without"), "off"),
}


def engine_and_release(text: str | None, version: str | None) -> tuple[str, str | None]:
    """`"SGLang 0.5.9"` is sglang, release 0.5.9; a release given on its own has the last word."""
    words = re.fullmatch(r"(?P<name>.*?)(?:[\s=v:-]+(?P<version>\d[\w.+]*))?", (text or "").strip(), re.DOTALL)
    name = words["name"].strip().lower() if words else ""
    return _ENGINES.get(_squeezed(name), name), version or (words["version"] if words else None)


def method_named(*texts: str | None) -> str | None:
    """The method that the first text to name one names."""
    squeezed = (_squeezed(text or "") for text in texts)
    return next((method for text in squeezed for spelling, method in _METHODS.items() if spelling in text), None)


def means_plain(word: str) -> bool:
    """Whether a drafter or method of this name is none."""
    return word.lower() in _PLAIN_WORDS


def switch(value: str) -> str:
    """ "yes" and "enabled" are on; what is no switch stays as it is."""
    return _SWITCHES.get(value.lower(), value)


def _squeezed(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())
