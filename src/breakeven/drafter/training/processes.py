"""One process or many: who I am, and how the objective is spread. Started by torchrun, which sets the environment."""

from __future__ import annotations

import gc
import os
import sys
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

__all__ = ["Processes", "leave", "spread", "synchronised", "whole"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    rank: int = 0
    count: int = 1
    device: torch.device

    @classmethod
    def start(cls, device_type: str) -> Processes:
        """Join torchrun's group, if there is one; each process of a host takes its own GPU."""
        count, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
        device = torch.device(device_type, int(os.environ.get("LOCAL_RANK", "0"))) if device_type == "cuda" else torch.device("cpu")
        if device.type == "cuda":
            torch.cuda.set_device(device)
        if count > 1 and not dist.is_initialized():
            dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        return cls(rank=rank, count=count, device=device)

    def stop(self) -> None:
        if self.count > 1 and dist.is_initialized():
            gc.collect()  # wrappers lie in cycles and hold the group
            dist.destroy_process_group()

    def add_up(self, values: Tensor) -> Tensor:
        """The sum of `values` over all processes, in place."""
        if self.count > 1:
            dist.all_reduce(values)
        return values

    def tell_all(self, value: Any) -> Any:
        """What the first process knows, to all."""
        if self.count == 1:
            return value
        told = [value]
        dist.broadcast_object_list(told)
        return told[0]

    def wait(self) -> None:
        if self.count > 1:
            dist.barrier()


def leave() -> NoReturn:
    """End a process of a group whose work is done and written, without taking the interpreter down.

    DTensor's caches keep a device mesh, and with it gloo's threads, alive until the interpreter ends, `destroy_process_group` or
    not. A thread that still has to let go of its last tensor then asks for an interpreter that is gone: the process aborts
    ("terminate called without an active exception"; one FSDP run in eight on two busy cores, torch 2.13) or hangs.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def spread(objective: nn.Module, mode: Literal["ddp", "fsdp"], processes: Processes) -> Any:
    """The objective as every process calls it. Gradients are averaged over processes, so losses are to be multiplied by their
    number."""
    if processes.count == 1:
        return objective
    if mode == "ddp":
        # buffers are the target's, the same everywhere and never written: nothing to send around before every pass
        buffers = [name for name, _ in objective.named_buffers()]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(objective, buffers)
        # no device ids: batches lie where they should already, and are no plain tensors that a wrapper could move
        return DistributedDataParallel(objective, gradient_as_bucket_view=True)
    return fully_shard(objective)


def synchronised(objective: Any, last: bool) -> Any:
    """Before each backward pass of a step: only the `last` one exchanges gradients."""
    if isinstance(objective, DistributedDataParallel):
        objective.require_backward_grad_sync = last
    elif isinstance(objective, FSDPModule):
        objective.set_requires_gradient_sync(last)
    return objective


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor, on the CPU; every process must ask."""
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().cpu()


def like(tensor: Tensor, model: Tensor) -> Tensor:
    """`tensor` where and how `model` lies."""
    if isinstance(model, DTensor):
        return distribute_tensor(tensor.to(model.device), model.device_mesh, model.placements)
    return tensor.to(model.device)
