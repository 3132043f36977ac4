"""Stored states read back: the same `capture` as the target's own, without the target.

A file is held against its SHA-256 when it is first touched. Shapes as in `states.py`; V vocabulary, W rows asked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from breakeven.drafter.capture.packing import pack_tokens
from breakeven.drafter.capture.states import PackedStates
from breakeven.drafter.capture.store_format import (
    DTYPES,
    KEY_BYTES,
    TARGET,
    FileLine,
    Manifest,
    read_lines,
    read_manifest,
    sample_key,
    shard_name,
)
from breakeven.drafter.data.samples import Sample
from breakeven.errors import DataError, StoreError

__all__ = ["StoredStates"]


class StoredStates:
    """`capture` gives the states of any stored samples in any order; iterating gives shard after shard."""

    def __init__(self, folder: Path, *, device: torch.device | str = "cpu", verify: bool = True) -> None:
        """
        verify: whether files are hashed when they are first touched.

        Raises:
            StoreError: no stored states, or not all of them: says how many shards are there.
        """
        self._folder = folder
        self.manifest: Manifest = read_manifest(folder)
        self.device = torch.device(device)
        self.dtype = DTYPES[self.manifest.dtype]
        self.layers = self.manifest.layers
        self.hidden_size, self.vocab_size = self.manifest.hidden_size, self.manifest.vocab_size
        self.num_layers = self.manifest.num_layers
        self._verify = verify
        self._lines: dict[str, FileLine] = read_lines(folder, self.manifest)
        missing = [
            index
            for index in range(len(self))
            if shard_name(index) not in self._lines or not (folder / shard_name(index)).is_file()
        ]
        if missing or TARGET not in self._lines:
            raise StoreError(
                f"{folder}: {len(self) - len(missing)} of {len(self)} shards are finished; run the "
                "breakeven data states command that began it again, it goes on where it stopped"
            )
        self._opened: dict[int, Any] = {}
        self._places: dict[bytes, tuple[int, int]] | None = None
        self._target: dict[str, Tensor] | None = None

    def __len__(self) -> int:
        return len(self.manifest.shards)

    def __iter__(self) -> Iterator[PackedStates]:
        return (self.read(index) for index in range(len(self)))

    @property
    def embed_weight(self) -> Tensor:
        """[V, H]"""
        return self._target_tensors()["embed"]

    def head_weight(self, rows: Tensor | None = None) -> Tensor:
        """[V, H], or `rows` [W] of it."""
        tensors = self._target_tensors()
        head = tensors.get("head", tensors["embed"])
        return head if rows is None else head[rows.to(head.device)]

    def read(self, index: int) -> PackedStates:
        """All samples of one shard, in the order in which they were captured.

        Raises:
            StoreError: the shard is damaged.
        """
        tensors = {name: self._tensor(index, name) for name in ("token_ids", "loss_mask", "starts", "auxiliary", "last")}
        starts = tensors["starts"]
        lengths = starts.diff()
        owners = torch.arange(len(lengths), dtype=torch.int32).repeat_interleave(lengths)
        return PackedStates(
            token_ids=tensors["token_ids"].long().to(self.device),
            positions=(torch.arange(len(owners)) - starts[:-1].repeat_interleave(lengths)).to(self.device),
            samples=owners.to(self.device),
            starts=starts,
            loss_mask=tensors["loss_mask"].to(self.device),
            auxiliary=tensors["auxiliary"].to(self.device),
            last=tensors["last"].to(self.device),
        )

    def capture(self, samples: Sequence[Sample]) -> PackedStates:
        """The states of `samples`, in their order, as `Capture.capture` gives them.

        Raises:
            DataError: a sample is not among the stored ones.
            StoreError: a shard is damaged.
        """
        places = self._index()
        auxiliary: list[Tensor] = []
        last: list[Tensor] = []
        for sample in samples:
            place = places.get(sample_key(sample))
            if place is None:
                raise DataError(
                    f"sample {sample.sample_id} ({len(sample.token_ids)} tokens) is not among the {self.manifest.num_samples} "
                    f"stored in {self._folder}; capture states with the same training file, split and length limit"
                )
            shard, index = place
            starts = self._tensor(shard, "starts")
            rows = slice(int(starts[index]), int(starts[index + 1]))
            for parts, name in ((auxiliary, "auxiliary"), (last, "last")):
                parts.append(self._rows(shard, name, rows))
        packed = pack_tokens(samples, self.device)
        return PackedStates(
            token_ids=packed.token_ids,
            positions=packed.positions,
            samples=packed.samples,
            starts=packed.starts,
            loss_mask=packed.loss_mask,
            auxiliary=torch.cat(auxiliary).to(self.device),
            last=torch.cat(last).to(self.device),
        )

    def _index(self) -> dict[bytes, tuple[int, int]]:
        if self._places is None:
            self._places = {}
            for shard in range(len(self)):
                keys = self._tensor(shard, "keys").numpy().tobytes()
                for index in range(len(keys) // KEY_BYTES):
                    self._places[keys[index * KEY_BYTES : (index + 1) * KEY_BYTES]] = (shard, index)
        return self._places

    def _tensor(self, shard: int, name: str) -> Tensor:
        opened = self._open(shard)
        try:
            found: Tensor = opened.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise self._damaged(shard_name(shard), error) from error
        first, end, num_tokens = self.manifest.shards[shard]
        hidden, states = self.hidden_size, self.dtype
        shape, dtype = {
            "keys": ((end - first, KEY_BYTES), torch.uint8),
            "token_ids": ((num_tokens,), torch.int32),
            "loss_mask": ((num_tokens,), torch.bool),
            "starts": ((end - first + 1,), torch.int64),
            "auxiliary": ((num_tokens, 3 * hidden), states),
            "last": ((num_tokens, hidden), states),
        }[name]
        if found.shape != shape or found.dtype != dtype:
            raise self._damaged(
                shard_name(shard), f"{name} is {found.dtype} of shape {list(found.shape)} instead of {dtype} {list(shape)}"
            )
        if name == "starts" and (int(found[0]) != 0 or int(found[-1]) != num_tokens or bool((found.diff() <= 0).any())):
            raise self._damaged(shard_name(shard), "starts do not rise from 0 to the number of tokens")
        return found

    def _rows(self, shard: int, name: str, rows: slice) -> Tensor:
        opened = self._open(shard)
        try:
            part: Tensor = opened.get_slice(name)[rows]
        except (SafetensorError, OSError) as error:
            raise self._damaged(shard_name(shard), error) from error
        width = 3 * self.hidden_size if name == "auxiliary" else self.hidden_size
        if part.shape != (rows.stop - rows.start, width) or part.dtype != self.dtype:
            raise self._damaged(shard_name(shard), f"{name} is {part.dtype} of shape {list(part.shape)}")
        return part

    def _open(self, shard: int) -> Any:
        if shard not in self._opened:
            self._opened[shard] = self._checked(shard_name(shard))
        return self._opened[shard]

    def _checked(self, name: str) -> Any:
        file, line = self._folder / name, self._lines[name]
        try:
            if file.stat().st_size != line.num_bytes:
                raise self._damaged(name, f"{file.stat().st_size} bytes instead of {line.num_bytes}")
            if self._verify:
                with file.open("rb") as opened:
                    found = hashlib.file_digest(opened, "sha256").hexdigest()
                if found != line.sha256:
                    raise self._damaged(name, "its SHA-256 is not the one that was written")
            return safe_open(file, framework="pt")
        except (SafetensorError, OSError) as error:
            raise self._damaged(name, error) from error

    def _damaged(self, name: str, why: object) -> StoreError:
        return StoreError(
            f"{self._folder / name}: damaged ({why}); remove the file and run the same breakeven data states command again"
        )

    def _target_tensors(self) -> dict[str, Tensor]:
        if self._target is None:
            opened = self._checked(TARGET)
            try:
                tensors = {name: opened.get_tensor(name).to(self.device) for name in opened.keys()}  # noqa: SIM118 - not a mapping
            except (SafetensorError, OSError) as error:
                raise self._damaged(TARGET, error) from error
            shape = (self.vocab_size, self.hidden_size)
            if "embed" not in tensors or tensors.get("head", tensors["embed"]).shape != shape:
                raise self._damaged(TARGET, f"no embedding or head of shape {list(shape)}")
            self._target = tensors
        return self._target
