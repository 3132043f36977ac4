"""What a server needs before its first request: the core, the tokenizer and the model's own generation defaults."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from breakeven.checkpoints.folder import open_folder, own_file
from breakeven.checkpoints.headers import MAX_JSON_BYTES, read_json
from breakeven.checkpoints.resolve import resolve_model
from breakeven.drafter.serving.loop import Core
from breakeven.drafter.serving.options import ServerOptions
from breakeven.drafter.serving.tokenizer import TextTokenizer
from breakeven.errors import CheckpointError

__all__ = ["GenerationDefaults", "Loaded", "load"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationDefaults:
    """What `generation_config.json` asks for; the defaults here are those of a folder without one."""

    eos_token_ids: frozenset[int] = frozenset()
    temperature: float = 1.0
    top_p: float = 1.0

    @classmethod
    def from_folder(cls, folder: Path) -> GenerationDefaults:
        """Read the folder's generation config, as vLLM does.

        Raises:
            CheckpointError: it is there and cannot be read.
        """
        file = own_file(folder, "generation_config.json", max_bytes=MAX_JSON_BYTES)
        if file is None:
            return cls()
        config = read_json(file)
        try:
            eos = config.get("eos_token_id")
            eos_token_ids = eos if isinstance(eos, list) else [] if eos is None else [eos]
            defaults = cls(
                eos_token_ids=frozenset(int(token) for token in eos_token_ids),
                temperature=float(config.get("temperature") or 1.0),
                top_p=float(config.get("top_p") or 1.0),
            )
        except (ValueError, TypeError, OverflowError) as error:
            raise CheckpointError(f"{file}: cannot be read ({error}); fetch the model again or remove the file") from error
        for name, off in (("top_k", (0, 50)), ("repetition_penalty", (1.0,)), ("min_p", (0.0,))):
            # 50 is what transformers writes for a model that never asked for a top_k
            if config.get(name) is not None and config[name] not in off:
                logger.warning("%s asks for %s=%s, which this server does not apply", file, name, config[name])
        return defaults


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """`description` is one line for the log: the figures the engine really runs with."""

    core: Core
    tokenizer: TextTokenizer
    generation: GenerationDefaults
    context_length: int
    description: str


def load(options: ServerOptions) -> Loaded:
    """Read everything that `options` name. What fails cheaply is tried first; torch is imported last.

    Raises:
        BreakevenError: a folder or a combination of options that cannot be served.
    """
    folder = resolve_model(options.model, Path.cwd())
    drafter = resolve_model(options.draft_model, Path.cwd()) if options.draft_model is not None else None
    open_folder(folder)
    tokenizer = TextTokenizer.from_folder(folder)
    generation = GenerationDefaults.from_folder(folder)

    import torch

    from breakeven.drafter.serving.core import EngineCore
    from breakeven.drafter.serving.models import DTYPES

    core = EngineCore.load(
        folder,
        method=options.method,
        num_draft_tokens=options.num_draft_tokens,
        drafter=drafter,
        forced_accept_length=options.forced_accept_length,
        ngram_max=options.ngram_max,
        ngram_min=options.ngram_min,
        schedule=options.draft_schedule,
        dtype=options.dtype,
        max_num_seqs=options.max_num_seqs,
        context_length=options.context_length,
        num_threads=options.num_threads,
        seed=options.seed,
    )
    speculation = "no speculation"
    if options.method is not None:
        head = f" head {drafter}" if drafter is not None else ""
        speculation = f"{options.method}{head} with {options.num_draft_tokens} draft tokens"
        if options.draft_schedule:
            ranges = ", ".join(f"{drafts} at {first} to {last} requests" for first, last, drafts in options.draft_schedule)
            speculation += f" by schedule: {ranges}"
        if options.forced_accept_length is not None:
            speculation += f", accept length forced to {options.forced_accept_length}"
    return Loaded(
        core=core,
        tokenizer=tokenizer,
        generation=generation,
        context_length=core.context_length,
        description=(
            f"Serving {folder} as {options.model_name}: {core.config.num_layers} layers, "
            f"dtype {str(DTYPES[options.dtype]).removeprefix('torch.')}, {torch.get_num_threads()} threads, "
            f"context {core.context_length}, at most {core.max_num_seqs} requests at once, {speculation}"
        ),
    )
