"""A launch command as a user pastes it: which engine, and its flags in the words that rules ask in.

Read, never run. Shell syntax around it (line ends, environment in front, a container's `docker run -e`, what follows `|` or `&&`)
is put aside; substitutions stay text.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from breakeven.errors import UsageError

__all__ = ["Flag", "Launch", "parse_launch"]

MAX_CHARACTERS = 100_000
_PROGRAMS = {
    "sglang": ("sglang.launch_server", "sglang"),
    "vllm": ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server", "vllm"),
}
_ENDS = {"|", "||", "&&", ";", "&", ">", ">>", "2>&1", "<", "2>"}
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
# Other spellings of a flag, as the engines accept them.
_ALIASES = {
    "-sc": "--speculative-config",
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-q": "--quantization",
    "--speculative-draft-model": "--speculative-draft-model-path",
    "--speculative-algo": "--speculative-algorithm",
    "--tp": "--tp-size",
    "--cuda-graph-bs-decode": "--cuda-graph-bs",
    "--cuda-graph-max-bs-decode": "--cuda-graph-max-bs",
}
# Official images carry the release in their tag; nightly and latest do not.
_IMAGE = re.compile(r"(?:^|/)(?P<name>vllm-openai|vllm|sglang):v?(?P<version>\d+(?:\.\d+)+(?:\.?(?:post|rc)\d+)?)(?:-[\w.-]+)?$")
_ENGINE_OF = {"vllm-openai": "vllm", "vllm": "vllm", "sglang": "sglang"}
# Flags without a value; what follows them is not theirs.
_SWITCH = re.compile(r"--(?:enable|disable|no|enforce|trust|skip|allow)[-_]")
_VLLM_SPEC_FLAGS = {"--spec-method": "method", "--spec-model": "model", "--spec-tokens": "num_speculative_tokens"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A value and the flag (or key of a flag's JSON) that gives it; `name` is empty where nothing does. source: as the launch's."""

    value: Any = None
    name: str = ""
    source: str = "launch command"

    def __str__(self) -> str:
        if not self.name:
            return f"{self.source}: not given"
        value = " ".join(map(str, self.value)) if isinstance(self.value, tuple) else str(self.value)
        return f"{self.source}: {self.name}" + ("" if self.value is True else f" {value[:120]}")

    def __bool__(self) -> bool:
        return bool(self.name)


@dataclass(frozen=True, kw_only=True)
class Launch:
    """flags: under their longest spelling; True for a flag without a value, a tuple where several follow. version: of the image.

    source: where the flags stand, the command or what a start-up log repeats of it.
    is_whole: a flag that is absent was not given; of a log's banner only some are kept."""

    engine: str
    target: str | None
    flags: Mapping[str, Any]
    env: Mapping[str, str] = field(default_factory=dict)
    version: str | None = None
    source: str = "launch command"
    is_whole: bool = True

    def flag(self, *names: str) -> Flag:
        for name in names:
            if name in self.flags:
                return Flag(value=self.flags[name], name=name, source=self.source)
        return Flag(source=self.source)

    def number(self, *names: str) -> int | None:
        return _number(self.flag(*names).value)

    @cached_property
    def speculative(self) -> Mapping[str, Any]:
        """vLLM's speculative configuration: the JSON, dotted keys and the short flags together."""
        text = self.flags.get("--speculative-config")
        found: dict[str, Any] = {}
        if isinstance(text, str):
            try:
                parsed = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise UsageError(
                    f"--speculative-config in the launch command is not valid JSON ({str(error)[:80]}); quote it as the shell needs"
                ) from error
            if not isinstance(parsed, dict):
                raise UsageError('--speculative-config in the launch command is no JSON object; expected {"method": ...}')
            found |= parsed
        for name, value in self.flags.items():
            if name.startswith("--speculative-config."):
                found[name.removeprefix("--speculative-config.").replace("-", "_")] = value
            elif name in _VLLM_SPEC_FLAGS:
                found[_VLLM_SPEC_FLAGS[name]] = value
        return found

    def spec(self, key: str) -> Flag:
        value = self.speculative.get(key)
        return (
            Flag(source=self.source) if value is None else Flag(value=value, name=f"--speculative-config {key}", source=self.source)
        )

    @property
    def speculates(self) -> bool:
        return bool(self.method)

    @cached_property
    def method(self) -> Flag:
        """SGLang's algorithm in upper case; vLLM's method, or the mere presence of its configuration (value None: it guesses)."""
        if self.engine == "sglang":
            flag = self.flag("--speculative-algorithm")
            return Flag(value=str(flag.value).upper(), name=flag.name, source=self.source) if flag else flag
        if not self.speculative:
            return Flag()
        found = self.spec("method")
        return found if found else Flag(value=None, name="--speculative-config", source=self.source)

    @cached_property
    def drafts_with(self) -> str | None:
        """The method in one word for both engines: mtp, ngram, draft_model, ...; None where it is a trained head, or not said."""
        method = str(self.method.value or "").lower()
        if "mtp" in method or method == "nextn":
            return "mtp"
        return {"standalone": "draft_model", "draft_model": "draft_model", "ngram": "ngram", "ngram_gpu": "ngram"}.get(
            method, "suffix" if method == "suffix" else None
        )

    @cached_property
    def drafter(self) -> Flag:
        return self.flag("--speculative-draft-model-path") if self.engine == "sglang" else self.spec("model")

    @cached_property
    def num_drafted(self) -> int | None:
        """Drafts a round on the longest path, where the command says."""
        if self.engine == "vllm":
            return _number(self.spec("num_speculative_tokens").value)
        return self.number("--speculative-num-steps")

    @cached_property
    def num_verified(self) -> int | None:
        """Tokens of one request that the target checks in a round, the root included."""
        if self.engine == "vllm":
            drafts = self.num_drafted
            return None if drafts is None else drafts + 1
        if self.topk == 1 and (steps := self.number("--speculative-num-steps")) is not None:
            return steps + 1  # SGLang overrides the number of draft tokens of a chain
        return self.number("--speculative-num-draft-tokens")

    @cached_property
    def topk(self) -> int | None:
        return 1 if self.engine == "vllm" else self.number("--speculative-eagle-topk")

    @cached_property
    def max_running(self) -> Flag:
        flag = self.flag("--max-num-seqs") if self.engine == "vllm" else self.flag("--max-running-requests")
        number = _number(flag.value)
        return Flag(value=number, name=flag.name, source=self.source) if number is not None else Flag(source=self.source)

    @cached_property
    def tensor_parallel(self) -> int:
        return self.number("--tensor-parallel-size", "--tp-size") or 1

    @cached_property
    def quantization(self) -> Flag:
        return self.flag("--quantization")

    @cached_property
    def context(self) -> Flag:
        flag = self.flag("--max-model-len") if self.engine == "vllm" else self.flag("--context-length")
        number = _number(flag.value)
        return Flag(value=number, name=flag.name, source=self.source) if number is not None else Flag(source=self.source)


def parse_launch(text: str | Sequence[str], env: Mapping[str, str] | None = None) -> Launch:
    """The engine, its flags and the environment set in front of it.

    Raises:
        UsageError: quotes that do not close, or no server of a known engine in it.
    """
    if isinstance(text, str):
        if len(text) > MAX_CHARACTERS:
            raise UsageError(f"the launch command has {len(text)} characters; expected at most {MAX_CHARACTERS}")
        try:
            words = shlex.split(re.sub(r"\\[ \t]*\r?\n", " ", text), comments=True)
        except ValueError as error:
            raise UsageError(f"the launch command cannot be split into words ({error}); check its quotes") from error
    else:
        words = list(text)
    found = _program(words)
    if found is None:
        raise UsageError(
            "the launch command starts no server that is known; expected vllm serve ... or python -m sglang.launch_server ..."
        )
    engine, start = found
    variables = dict(env or {})
    for word in words[:start]:
        if match := _ASSIGNMENT.fullmatch(word.removeprefix("-e").removeprefix("--env=")):
            variables[match[1]] = match[2]
    positional, flags = _flags(_until_end(words[start:]))
    target = _text(flags.get("--model-path") or flags.get("--model")) or next(
        (word for word in positional if word != "serve"), None
    )
    image = next((match for word in words[:start] if (match := _IMAGE.search(word)) and _ENGINE_OF[match["name"]] == engine), None)
    return Launch(engine=engine, target=target, flags=flags, env=variables, version=image["version"] if image else None)


def _program(words: Sequence[str]) -> tuple[str, int] | None:
    """Engine and the index after its program. Images are named alike, so a bare name counts only before `serve`."""
    for index, word in enumerate(words):
        for engine, (*modules, command) in _PROGRAMS.items():
            name = word.rpartition("/")[2]
            if word in modules or name == modules[0].replace(".", "/") + ".py" or (name == "api_server.py" and engine == "vllm"):
                return engine, index + 1
            if name == command and words[index + 1 : index + 2] == ["serve"]:
                return engine, index + 2
    for index, word in enumerate(words):
        image = re.search(r"(?:^|/)(vllm-openai|vllm|sglang)(?::[\w.-]+)?$", word)
        if image is not None and any(later.startswith("-") for later in words[index + 1 :]) and "docker" in " ".join(words[:2]):
            return ("sglang" if image[1] == "sglang" else "vllm"), index + 1
    return None


def _until_end(words: Sequence[str]) -> list[str]:
    kept: list[str] = []
    for word in words:
        if word in _ENDS:
            break
        kept.append(word)
    return kept


def _flags(words: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    positional: list[str] = []
    flags: dict[str, Any] = {}
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not _is_flag(word):
            positional.append(word)
            continue
        name, equals, value = word.partition("=")
        values = [value] if equals else []
        while not equals and not _SWITCH.match(name) and index < len(words) and not _is_flag(words[index]):
            values.append(words[index])
            index += 1
        # names are written with dashes or underscores alike, the part after a dot is a key
        head, dot, key = name.partition(".")
        name = _ALIASES.get(head.replace("_", "-"), head.replace("_", "-")) + dot + key
        flags[name] = True if not values else values[0] if len(values) == 1 else tuple(values)
    return positional, flags


def _is_flag(word: str) -> bool:
    return word.startswith("-") and not re.fullmatch(r"-\d+(\.\d+)?", word) and len(word) > 1


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object) -> int | None:
    if type(value) is int:
        return value if 0 <= value < 1 << 40 else None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 13:
        return int(value)
    return None
