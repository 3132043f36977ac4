"""An arm as plan.yaml says it: a server to launch with flags of its own, or one to attach to by its address."""

from __future__ import annotations

import re
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from breakeven.experiment.plan_sections import Section, Texts
from breakeven.experiment.secrets import names_a_secret
from breakeven.experiment.speculation_plan import SpeculationPlan
from breakeven.inputs.checking import VariableName

__all__ = ["ArmPlan", "EngineName", "ServingPlan"]

VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Set from the plan's keys: given twice, a server could listen elsewhere or admit more than its arm says.
RESERVED_FLAGS = ("--port", "--host", "--model", "--model-path", "--max-num-seqs", "--max-running-requests")

EngineName = Literal["local", "vllm", "sglang", "fake"]


class ServingPlan(Section):
    """How a launched engine is installed and laid out. In the plan: for every arm of the plan's engine; in an arm: for it alone."""

    executable: str | None = Field(
        default=None, min_length=1, description="The engine's command, its environment's folder or Python (default: on the PATH)"
    )
    engine_version: str | None = Field(
        default=None, min_length=1, max_length=40, description="Release, where it cannot be read from the installation"
    )
    tensor_parallel: int | None = Field(default=None, ge=1, le=1024, description="GPUs that share each layer")
    pipeline_parallel: int | None = Field(default=None, ge=1, le=1024, description="Stages of layers")
    data_parallel: int | None = Field(default=None, ge=1, le=1024, description="Copies of the model behind one server")
    quantization: str | None = Field(default=None, min_length=1, max_length=40, description="The target's, as the engine spells it")
    max_graph_batch: int | None = Field(
        default=None, ge=1, le=100_000, description="Largest batch, in requests, decoded from a recorded GPU graph"
    )


class ArmPlan(ServingPlan):
    engine: EngineName | None = Field(default=None, description="This arm's engine, where it differs from the plan's")
    speculation: SpeculationPlan | None = Field(default=None, description="Absent: plain decoding")
    max_running_requests: int | None = Field(
        default=None, ge=1, description="This arm's own limit; the report flags the difference"
    )
    command: Texts = Field(default=(), description="Your own command that serves this arm, as a list; {port} is put in")
    extra_flags: Texts = Field(default=(), description="Given to the engine's command line untouched")
    env: dict[VariableName, str] = Field(default_factory=dict, description="Environment of this server; no secrets")
    served_name: str | None = Field(default=None, min_length=1, max_length=200, description="What requests call the model")
    url: str | None = Field(default=None, description="Attach to a running server instead of launching one")
    metrics_urls: Texts = Field(default=(), description="Attached: /metrics of every replica (default: URL/metrics)")
    api_key_env: str | None = Field(default=None, description="Attached: the environment variable that holds the API key")
    simulation: dict[str, Any] = Field(default_factory=dict, description="Declared truth of the fake engine")

    @field_validator("url")
    @classmethod
    def _plain_url(cls, url: str | None) -> str | None:
        return None if url is None else _checked_url(url)

    @field_validator("metrics_urls")
    @classmethod
    def _plain_urls(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(_checked_url, urls))

    @model_validator(mode="after")
    def _possible(self) -> ArmPlan:
        if self.api_key_env is not None and not VARIABLE_NAME.fullmatch(self.api_key_env):
            raise ValueError(
                "api_key_env holds no variable name; expected the NAME of an environment variable, never the key itself"
            )
        flags = [flag for flag in self.extra_flags if flag.startswith("-")]
        secret = next((name for name in (*self.env, *flags) if names_a_secret(name)), None)
        if secret is not None:
            shown = secret.partition("=")[0]
            raise ValueError(f"{shown} looks like a secret, and plans are stored; set it in the environment, which servers inherit")
        reserved = next((flag for flag in flags if flag.partition("=")[0] in RESERVED_FLAGS), None)
        if reserved is not None:
            raise ValueError(f"extra_flags has {reserved}, which Breakeven sets itself; remove it")
        if self.command and not any("{port}" in part for part in self.command):
            raise ValueError("command has no {port}; put it where the server takes its port, e.g. [./serve.sh, --port, '{port}']")
        fixed = next((key for key in ("extra_flags", *ServingPlan.model_fields) if getattr(self, key)), None)
        if self.command and fixed is not None:
            raise ValueError(f"{fixed} goes into a command line that Breakeven writes, and this arm has its own (command)")
        launched = ("command", "extra_flags", "env", *ServingPlan.model_fields)
        launched_only = [key for key in launched if getattr(self, key) and key != "engine_version"]
        if self.url is not None and launched_only:
            raise ValueError(f"{launched_only[0]} cannot reach a server that is only attached to (url); remove one of the two")
        attached_only = [key for key in ("metrics_urls", "api_key_env") if getattr(self, key)]
        if self.url is None and attached_only:
            raise ValueError(f"{attached_only[0]} goes with url (an attached server); remove it or give the url")
        return self


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        # a port is first looked at when it is asked for; urlsplit drops line ends and tabs without a word
        whole = parts.hostname is not None and (parts.port is None or parts.port > 0) and url.isprintable() and " " not in url
    except ValueError:
        whole = False
    if not whole or parts.scheme not in {"http", "https"}:
        raise ValueError(f"{url!a} is no server address; expected http://HOST:PORT or https://HOST")
    if parts.username or parts.password or parts.query:
        raise ValueError("the address carries a user, a password or a query, and plans are stored; use api_key_env for the key")
    return url.rstrip("/")
