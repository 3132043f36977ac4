"""An arm as a container: the flags it was measured with, paths and addresses translated to where a container has them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from breakeven.checkpoints.folder import open_folder
from breakeven.deploy.relaunch import Relaunch
from breakeven.engines.base import Arm
from breakeven.engines.registry import get_engine
from breakeven.engines.sglang.schedule_file import SCHEDULE_FLAG, schedule_file
from breakeven.errors import UsageError
from breakeven.experiment.record import RunRecord
from breakeven.experiment.secrets import names_a_secret

__all__ = ["PORT", "SCHEDULE", "Container", "container", "header"]

PORT = 8000
MODELS = "/models"
SCHEDULE = "/etc/breakeven/schedule.json"
# Memory that the processes of one server share, for NCCL and for handing tensors to workers.
SHARED_MEMORY_BYTES = 8 * 2**30
# Weights are read through the page cache and held once more by the engine; Python and its libraries come on top.
MEMORY_PER_WEIGHT_BYTE, MEMORY_BASE_BYTES = 1.5, 8 * 2**30
_IMAGES = {"vllm": "vllm/vllm-openai", "sglang": "lmsysorg/sglang"}
# What only holds on the machine of the run: numbers of its devices, drivers of its image.
_OF_THE_HOST = re.compile(r"NVIDIA_.*|.*_VISIBLE_DEVICES|.*_VERSION|(HF|TRANSFORMERS)_.*")
# of two parts at least: "/v1" is where a server answers
_PATH = re.compile(r"(?<![^\s=:,;\"'\[{])/[\w.@+-]+(?:/[\w.@+-]+)+")
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """`models` maps folders on this machine to their place in the container. `num_gpus` is 0 where the run had none.

    `schedule`: content of the file at `SCHEDULE`, for engines that read their drafts by batch from a file.
    `memory_bytes`: to be asked for, estimated from the files of the models. `why_image`: how sure the image is.
    """

    name: str
    arm: str
    run: str
    image: str
    why_image: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    models: Mapping[Path, str]
    schedule: str | None
    health_path: str
    start_timeout_s: float
    num_gpus: int
    num_cpus: int | None
    memory_bytes: int


def container(record: RunRecord, relaunch: Relaunch, *, start_timeout_s: float) -> Container:
    """Raises UsageError for arms whose program is not known to exist in a container, or answers on loopback only."""
    arm = relaunch.arm
    if arm.command:
        raise UsageError(
            f"arm {arm.name}: started by a command of your own ({arm.command[0]}), and what a container needs to hold for it is "
            "not known here; breakeven serve without --compose and --kubernetes runs it on this machine"
        )
    if arm.engine not in _IMAGES:
        raise UsageError(
            f"arm {arm.name}: the {arm.engine} engine is for measuring: it knows no authentication and listens on loopback only, "
            "where nothing outside its container reaches it. Measure the arm with vLLM or SGLang to deploy it"
        )
    models = {arm.target: f"{MODELS}/target"} if arm.target is not None else {}
    if arm.speculation is not None and arm.speculation.drafter is not None:
        models[arm.speculation.drafter] = f"{MODELS}/drafter"
    image, why_image = _image(arm, record)
    on_gpu = any(key.startswith("gpu.") and key != "gpu.error" for key in record.provenance)
    if not on_gpu:
        why_image += "; the run had no GPU and this image is made for one, so name one for the CPU"
    weights = sum(file.stat().st_size for folder in models for file in open_folder(folder).path.glob("*.safetensors"))
    return Container(
        name=_NOT_IN_NAMES.sub("-", f"{record.name}-{arm.name}".lower()).strip("-")[:50].strip("-") or "served",
        arm=arm.name,
        run=record.name,
        image=image,
        why_image=why_image,
        argv=_argv(relaunch, models),
        env=_environment(relaunch),
        models=models,
        schedule=_schedule(arm),
        health_path=get_engine(arm.engine).health_path,
        start_timeout_s=start_timeout_s,
        num_gpus=arm.tensor_parallel * arm.pipeline_parallel * arm.data_parallel if on_gpu else 0,
        num_cpus=arm.num_threads,
        memory_bytes=int(weights * MEMORY_PER_WEIGHT_BYTE + MEMORY_BASE_BYTES),
    )


def header(described: Container, checks: list[str]) -> str:
    """The comment on top of a file: where it comes from and what nobody has checked."""
    models = [f"models: {place} is {folder} on the machine of the run" for folder, place in described.models.items()]
    checks = [
        f"image: {described.why_image}",
        *models,
        *_left_paths(described),
        *checks,
        "access: the server asks for no key; put what does in front of it",
    ]
    lines = [f"Arm {described.arm} of the run {described.run}, written by breakeven serve. Nobody has started it. Check first:"]
    lines += [f"  {check}" for check in checks]
    # names of arms and folders are other people's text: one comment line each, whatever they hold
    return "".join(f"# {' '.join(line.splitlines())}\n" for line in lines)


def _left_paths(described: Container) -> list[str]:
    """Paths in flags and variables that were not translated: no container has what lay there, unless somebody puts it there."""
    told = []
    words = [*zip(described.argv, described.argv[1:], strict=False), *described.env.items()]
    for name, value in words:
        paths = [path for path in _PATH.findall(value) if not path.startswith((f"{MODELS}/", SCHEDULE))]
        if paths:
            shown = ", ".join(dict.fromkeys(paths))
            told.append(f"paths: {name} has {shown} as on the machine of the run; mount it or leave it out")
    return told


def _image(arm: Arm, record: RunRecord) -> tuple[str, str]:
    repository = _IMAGES[arm.engine]
    version = arm.engine_version or record.facts.get(arm.name, {}).get("version")
    if not version:
        return f"{repository}:CHECK-THE-TAG", f"the run does not say which release of {arm.engine} it measured; name it by its tag"
    release = str(version).removeprefix("v").partition("+")[0]
    return (
        f"{repository}:v{release}",
        f"the tag stands for the release that was measured ({version}); see that it exists and fits your hardware",
    )


def _schedule(arm: Arm) -> str | None:
    """SGLang's own spelling; vLLM has its schedule on the command line."""
    if arm.engine != "sglang" or arm.speculation is None or not arm.speculation.schedule:
        return None
    return schedule_file(arm.speculation.schedule, arm.speculation.num_draft_tokens).read_text(encoding="utf-8")


def _argv(relaunch: Relaunch, models: Mapping[Path, str]) -> tuple[str, ...]:
    argv = list(relaunch.command(PORT).argv)
    # the program by its name: where it is installed here says nothing about the image
    if argv[1:2] == ["-m"]:
        argv[0] = "python3"
    else:
        argv[0] = Path(argv[0]).name
    if "--host" in argv[:-1]:
        argv[argv.index("--host") + 1] = "0.0.0.0"  # noqa: S104  # inside the container; what reaches it is for the deployment to say
    if SCHEDULE_FLAG in argv[:-1] and _schedule(relaunch.arm) is not None:
        argv[argv.index(SCHEDULE_FLAG) + 1] = SCHEDULE
    secret = next((word for word in argv if word.startswith("-") and names_a_secret(word)), None)
    if secret is not None:
        raise UsageError(f"arm {relaunch.arm.name}: {secret.partition('=')[0]} looks like a secret, which no manifest may hold")
    return tuple(_translated(word, models) for word in argv)


def _translated(word: str, models: Mapping[Path, str]) -> str:
    # the longest first: a drafter may lie inside its target's folder
    for folder, place in sorted(models.items(), key=lambda item: -len(str(item[0]))):
        # paths also stand in JSON (--speculative-config), which spells some characters otherwise
        for spelled in (str(folder), json.dumps(str(folder))[1:-1]):
            word = re.sub(rf"{re.escape(spelled)}(?![\w.-])", lambda _match, place=place: place, word)  # type: ignore[misc]
    return word


def _environment(relaunch: Relaunch) -> dict[str, str]:
    inherited = {name: value for name, value in relaunch.recorded.items() if not _OF_THE_HOST.fullmatch(name) and "/" not in value}
    env = {**inherited, **relaunch.stored.env}
    return {name: value for name, value in env.items() if not names_a_secret(name)}
