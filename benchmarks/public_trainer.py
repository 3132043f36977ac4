"""The trainer of `speculators` 0.9.0 over the batches of benchmarks/training.py, and whether it computes what ours does.

Same weights, states, batch, K, packing and soft targets: `agreement` holds the loss of every step against ours before anything is
timed. What it does otherwise, and what is done about it here:

* its head is frozen. Where nothing is compiled whole it is also timed with the head trained, which is what ours does;
* it judges every row of the batch, ours the answer rows alone; losses of both count answer rows alone;
* a start may lie in the sample before where a prompt is shorter than K: a few rows more, which `agreement` prints;
* its loss is the divergence from the target, ours the cross entropy: the target's entropy apart, with the same gradient;
* its data loader, its generation of states by a vLLM server and its log lines (each waits for the device) are left out.

Why its first step takes minutes on a GPU: its whole forward is under torch.compile (`mode` default, no max-autotune), which
breaks it into parts at `torch._dynamo.graph_break()` in the layer and at `masked_select` in its accuracies. The keys grow by a
batch at each step of the training-time test, so the part with attention is compiled for one, for two and for any number of
batches of keys. At K = 6 that is 14 graphs with 6 recompilations (counted with torch 2.13), each forwards and most backwards;
then its two loss kernels are tuned, over up to 21 tiles each. All of it happens in the first step: after four batches there are
14 graphs, too.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from torch import Tensor

from breakeven.checkpoints.folder import open_folder
from breakeven.drafter.model.llama import LlamaConfig, LlamaWeights
from breakeven.drafter.training.batch import TrainingBatch

__all__ = ["WAYS", "PublicTrainer"]

# Surest first. "plain": nothing is compiled, scores are written out (the only way on a CPU, whose flex attention has no backward
# pass); "attention": flex attention is compiled and nothing else; "whole": as it comes.
WAYS = {"cpu": ("plain",), "cuda": ("attention", "whole")}


class PublicTrainer:
    """Its Trainer, fed from the device's memory. `ours` is the `Ours` of benchmarks/training.py."""

    def __init__(self, ours: Any, optimiser: str, scratch: Path, way: str) -> None:
        _stand_in_for_unused_imports()
        from speculators.losses import resolve_loss_config  # type: ignore[import-not-found]
        from speculators.models import attention  # type: ignore[import-not-found]
        from speculators.models.eagle3.core import Eagle3DraftModel  # type: ignore[import-not-found]
        from speculators.train import trainer  # type: ignore[import-not-found]
        from transformers import AutoConfig

        self.ours = ours
        layer = AutoConfig.from_pretrained(str(ours.folder))
        layer.num_hidden_layers = 1
        layer.head_dim = ours.config.shape.head_dim
        known = torch.zeros(ours.config.shape.vocab_size, dtype=torch.bool)
        known[ours.target_ids] = True
        model = Eagle3DraftModel.from_training_args(
            layer,
            t2d=known,
            d2t=ours.target_ids - torch.arange(len(ours.target_ids)),
            verifier_name_or_path=str(ours.folder),
            target_layer_ids=list(ours.config.auxiliary_layers),
            draft_vocab_size=len(ours.target_ids),
            norm_before_residual=False,
            ttt_steps=ours.num_steps,
            draft_attn_impl="eager" if way == "plain" else "simple_flex_attention",
        )
        attention.flex_attention = _flex_attention(way)
        if way == "whole":
            _kernels_of_their_own()
        else:
            # it compiles where it finds a GPU, and keeps the function that it compiled
            model.forward = MethodType(inspect.unwrap(Eagle3DraftModel.forward), model)
        _same_weights(model, ours)
        target = open_folder(ours.folder)
        final_norm = LlamaWeights.from_folder(target, LlamaConfig.from_folder(target), torch.float32).norm.to(ours.device)
        self.batches = [_public_batch(batch, final_norm) for batch in ours.given]
        self.loader = _Loader(self.batches)
        self._loss = {
            "ttt_steps": ours.num_steps,
            "ttt_step_loss_decay": 0.8,
            "loss_config": resolve_loss_config("kl_div", "eager" if way == "plain" else "fused"),
        }
        # its own answer is the number of a GPU
        trainer.get_local_rank = lambda: ours.device
        self.trainer = trainer.Trainer(
            model,
            trainer.TrainerConfig(
                lr=1e-5,
                num_epochs=1,
                save_path=str(scratch / "speculators"),
                train_call_kwargs=self._loss,
                scheduler_type="none",
                optimizer=optimiser,
                hidden_states_dtype=ours.dtype,
                log_freq=10**9,  # each of its log lines waits for the device several times
            ),
            self.loader,
        )
        self.trainer.device_type = ours.device.type
        self.trainer.global_step = 1
        self.trainer.rank = 1  # so that it draws no progress bar
        self.model = model

    def window(self, num_steps: int, *, train_head: bool = False) -> int:
        self.model.lm_head.weight.requires_grad_(train_head)
        self.loader.num_steps = num_steps
        self.trainer.train_epoch(0)
        return sum(self.ours.tokens(index) for index in range(num_steps))

    @torch.no_grad()
    def losses(self) -> list[float]:
        """By step of the training-time test, of its first batch as it stands, without the decay."""
        with torch.autocast(self.ours.device.type, dtype=self.ours.dtype, enabled=self.ours.dtype != torch.float32):
            _, _, metrics = self.model(**self.batches[0], **self._loss)
        return [float(metrics[f"loss_{step}_sum"]) / 0.8**step for step in range(self.ours.num_steps)]

    def num_rows(self) -> list[int]:
        mask = self.batches[0]["loss_mask"][0]
        return [int(mask[step:].sum()) for step in range(self.ours.num_steps)]


@torch.no_grad()
def our_losses(ours: Any) -> list[float]:
    """Ours of the same batch, less the target's entropy at the same rows: its divergence, as the other trainer has it."""
    batch = ours.given[0]
    _, sums, _, _ = ours.objective(batch, ours.scales[0])
    logits = batch.last[batch.rows].float() @ ours.objective.target_head.float().T
    log_shares = logits.log_softmax(-1)
    entropy = -(log_shares.exp() * log_shares).sum(-1)
    counted = torch.stack([entropy[batch.depth > step].sum() for step in range(ours.num_steps)])
    return ((sums.float() - counted).cpu() / torch.from_numpy(batch.judged.num_trained)).tolist()


def _flex_attention(way: str) -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import flex_attention

    if way != "attention":
        return flex_attention
    # one kernel for each number of keys, with and without gradients
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 64)
    return torch.compile(flex_attention, dynamic=False)


def _kernels_of_their_own() -> None:
    """Its two loss kernels share one list of tiles, which torch 2.11 cannot trace ("already tracked for mutation")."""
    from speculators.losses import fused  # type: ignore[import-not-found]

    for kernel in (fused.loss_forward_kernel, fused.loss_backward_kernel):
        kernel.configs = list(kernel.configs)


@torch.no_grad()
def _same_weights(model: Any, ours: Any) -> None:
    tensors = ours.objective.drafter.checkpoint_tensors("layers.0")
    known, tensors = tensors.pop("t2d"), tensors | {"d2t": model.d2t.cpu()}
    assert torch.equal(known, model.t2d.cpu())
    _, unexpected = model.load_state_dict(tensors, strict=False)
    assert not unexpected, unexpected


class _Loader:
    """What its Trainer asks of a DataLoader."""

    batch_sampler = None

    def __init__(self, batches: list[dict[str, Any]]) -> None:
        self._batches = batches
        self.num_steps = len(batches)

    def __len__(self) -> int:
        return self.num_steps

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for index in range(self.num_steps):
            yield dict(self._batches[index % len(self._batches)])


def _public_batch(batch: TrainingBatch, final_norm: Tensor) -> dict[str, Any]:
    """Our batch in its layout: tokens one ahead of states, and one sequence of all samples.

    It norms the target's last states itself; ours are normed, so they are divided by the weight that it will multiply by.
    """
    following = torch.cat([batch.token_ids[1:], batch.token_ids[:1]])
    judged = torch.zeros(len(batch.token_ids), dtype=torch.bool, device=batch.token_ids.device)
    judged[batch.rows - 1] = True
    before_norm = (batch.last.float() / final_norm).to(batch.last.dtype)
    return {
        "hidden_states": batch.auxiliary[None],
        "input_ids": following[None],
        "document_ids": batch.samples.long()[None],
        "loss_mask": judged[None],
        "position_ids": batch.positions[None],
        "verifier_last_hidden_states": torch.cat([before_norm[1:], before_norm[:1]])[None],
        "error_records": 0,
    }


def _stand_in_for_unused_imports() -> None:
    from importlib.util import find_spec
    from unittest.mock import MagicMock

    for name in ("openai", "openai.types", "openai.types.chat", "openai.types.completion", "datasets", "hs_connectors", "httpx"):
        if name.partition(".")[0] not in sys.modules and find_spec(name.partition(".")[0]) is not None:
            continue
        module = MagicMock(name=name)
        module.__path__, module.__spec__, module.__name__ = [], None, name
        sys.modules[name] = module
