"""The stand-in for SGLang's kernels against loops that say what each of them means."""

from __future__ import annotations

import importlib
import math
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import torch

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def kernels() -> Iterator[ModuleType]:
    sys.path.insert(0, str(Path(__file__).parent))
    try:
        yield importlib.import_module("sgl_kernel")
    finally:
        sys.path.remove(str(Path(__file__).parent))


HEADS, GROUPS, SIZE, SLOTS, WIDTH = 4, 2, 8, 64, 32
SCALING = 1 / math.sqrt(SIZE)


@dataclass
class Cache:
    """Requests with `lengths` positions in a paged cache, their slots anywhere in it."""

    lengths: list[int]
    keys: torch.Tensor
    values: torch.Tensor
    table: torch.Tensor
    rows: torch.Tensor

    @classmethod
    def of(cls, lengths: list[int]) -> Cache:
        slots = torch.randperm(SLOTS)[: sum(lengths)]
        table = torch.zeros(len(lengths) + 3, WIDTH, dtype=torch.int32)
        rows = torch.randperm(len(lengths) + 3)[: len(lengths)]
        taken = 0
        for row, length in zip(rows.tolist(), lengths, strict=True):
            table[row, :length] = slots[taken : taken + length].int()
            taken += length
        return cls(lengths, torch.randn(SLOTS, GROUPS, SIZE), torch.randn(SLOTS, GROUPS, SIZE), table, rows)

    def slot(self, request: int, position: int) -> int:
        return int(self.table[self.rows[request], position])


def seen_through(query: torch.Tensor, seen: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
    """One query [H, D] over pairs of keys and values [G, D], head by head."""
    out = torch.zeros(HEADS, SIZE)
    for head in range(HEADS):
        group = head // (HEADS // GROUPS)
        scores = [float(query[head] @ key[group]) * SCALING for key, _ in seen]
        weights = [math.exp(score - max(scores)) for score in scores]
        for weight, (_, value) in zip(weights, seen, strict=True):
            out[head] += weight / sum(weights) * value[group]
    return out


def test_decode_attention(kernels: ModuleType) -> None:
    torch.manual_seed(0)
    cache = Cache.of([5, 1, 9])
    query, new_keys, new_values = torch.randn(3, HEADS, SIZE), torch.randn(3, GROUPS, SIZE), torch.randn(3, GROUPS, SIZE)
    slots = torch.tensor([cache.slot(request, length - 1) for request, length in enumerate(cache.lengths)])
    out, keys, values = torch.empty_like(query), cache.keys.clone(), cache.values.clone()
    torch.ops.sgl_kernel.decode_attention_cpu(
        query, keys, values, 1.0, 1.0, out, new_keys, new_values, slots, torch.empty(0), cache.table, cache.rows,
        torch.tensor(cache.lengths), SCALING, 0.0, False, 0, None, None,
    )  # fmt: skip
    for request, length in enumerate(cache.lengths):
        cache.keys[slots[request]], cache.values[slots[request]] = new_keys[request], new_values[request]
        places = [cache.slot(request, position) for position in range(length)]
        torch.testing.assert_close(out[request], seen_through(query[request], [(cache.keys[p], cache.values[p]) for p in places]))
    torch.testing.assert_close(keys, cache.keys)
    torch.testing.assert_close(values, cache.values)


@pytest.mark.parametrize("masked", [False, True])
def test_extend_attention(kernels: ModuleType, masked: bool) -> None:
    torch.manual_seed(1)
    cache, counts = Cache.of([7, 4, 6]), [4, 4, 4]
    total = sum(counts)
    query = torch.randn(total, HEADS, SIZE)
    new_keys, new_values = torch.randn(total, GROUPS, SIZE), torch.randn(total, GROUPS, SIZE)
    masks = torch.stack([torch.rand(4, 4).round().bool().tril() | torch.eye(4, dtype=torch.bool) for _ in counts])
    out, starts = torch.empty_like(query), torch.tensor([0, 4, 8], dtype=torch.int32)
    torch.ops.sgl_kernel.extend_attention_cpu(
        query, new_keys, new_values, out, cache.keys, cache.values, 1.0, 1.0, cache.table, cache.rows,
        torch.tensor(cache.lengths), torch.tensor(counts, dtype=torch.int32), starts, 4, SCALING, 0.0, False, 0, None, None,
        masks.flatten() if masked else None, True,
    )  # fmt: skip
    for request, (length, count) in enumerate(zip(cache.lengths, counts, strict=True)):
        prefix = [cache.slot(request, position) for position in range(length - count)]
        for token in range(count):
            shown = [other for other in range(count) if (masks[request, token, other] if masked else other <= token)]
            seen = [(cache.keys[place], cache.values[place]) for place in prefix]
            seen += [(new_keys[request * 4 + other], new_values[request * 4 + other]) for other in shown]
            torch.testing.assert_close(out[request * 4 + token], seen_through(query[request * 4 + token], seen))


def test_attention_of_a_kind_that_it_does_not_do_is_refused(kernels: ModuleType) -> None:
    cache = Cache.of([3])
    query = torch.randn(1, HEADS, SIZE)
    with pytest.raises(NotImplementedError, match="capped logits, a sliding window: the stand-in"):
        torch.ops.sgl_kernel.decode_attention_cpu(
            query, cache.keys, cache.values, 1.0, 1.0, torch.empty_like(query), None, None, cache.rows, torch.empty(0), cache.table,
            cache.rows, torch.tensor(cache.lengths), SCALING, 30.0, False, 128, None, None,
        )  # fmt: skip


@dataclass
class DraftTree:
    """A tree as a drafter grows it: every node is the path of choices that leads to it, the root the empty path."""

    paths: list[tuple[int, ...]]
    parent_list: list[int]
    selected: list[int]

    @classmethod
    def grown(cls, topk: int, num_steps: int, num_nodes: int, choose: random.Random) -> DraftTree:
        """Each step expands `topk` of the last step's candidates by `topk` tokens; the best candidates of all become nodes."""
        scores: dict[tuple[int, ...], float] = {(): 1.0}
        candidates: list[tuple[int, ...]] = []
        parent_list, expanded = [-1], [()]
        for step in range(num_steps):
            grown = [(*path, branch) for path in expanded for branch in range(topk)]
            first = len(candidates)
            for path in grown:
                scores[path] = scores[path[:-1]] * choose.uniform(0.1, 0.9)  # never above the parent's, so parents are taken first
            candidates += grown
            best = sorted(range(len(grown)), key=lambda index: -scores[grown[index]])[:topk]
            expanded = [grown[index] for index in best]
            if step + 1 < num_steps:
                parent_list += [first + index for index in best]
        best = sorted(range(len(candidates)), key=lambda index: -scores[candidates[index]])[: num_nodes - 1]
        selected = sorted(best)
        return cls([(), *(candidates[index] for index in selected)], parent_list, selected)

    def children(self, node: int) -> list[int]:
        return [other for other, path in enumerate(self.paths) if path and path[:-1] == self.paths[node]]

    def mask(self) -> list[list[bool]]:
        return [[path[: len(other)] == other for other in self.paths] for path in self.paths]


def candidates(trees: list[DraftTree]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([tree.parent_list for tree in trees]), torch.tensor([tree.selected for tree in trees])


# topk, steps, nodes
SHAPES = [(1, 1, 2), (1, 3, 4), (2, 3, 6), (3, 2, 8), (4, 4, 16)]


@pytest.mark.parametrize("shape", SHAPES)
def test_trees_are_built_and_read_back_from_their_masks(kernels: ModuleType, shape: tuple[int, int, int]) -> None:
    topk, num_steps, num_nodes = shape
    choose = random.Random(3)
    trees, lengths = [DraftTree.grown(topk, num_steps, num_nodes, choose) for _ in range(5)], torch.tensor([3, 1, 40, 7, 9])
    mask = torch.ones(5 * num_nodes**2, dtype=torch.bool)
    positions, links = torch.empty(5 * num_nodes, dtype=torch.long), torch.full((3, 5, num_nodes), -1)
    kernels.build_tree_kernel_efficient_cpu(*candidates(trees), lengths, mask, positions, *links, topk, num_steps, num_nodes, 1)
    index, next_token, next_sibling = links
    assert index.flatten().tolist() == list(range(5 * num_nodes))
    for request, tree in enumerate(trees):
        assert mask.view(5, num_nodes, num_nodes)[request].tolist() == tree.mask()
        assert positions.view(5, -1)[request].tolist() == [int(lengths[request]) + len(path) for path in tree.paths]
        for node in range(num_nodes):
            walked, child = [], int(next_token[request, node])
            while child != -1:
                walked.append(child)
                child = int(next_sibling[request, child])
            assert walked == tree.children(node)
    again, again_links = torch.empty_like(positions), torch.full((3, 5, num_nodes), 99)
    importlib.import_module("sgl_kernel.speculative").reconstruct_indices_from_tree_mask(
        mask, lengths, again, *again_links, 5, num_nodes
    )
    assert again.tolist() == positions.tolist()
    assert again_links.tolist() == links.tolist()


def test_nodes_that_fill_up_a_mask_are_linked_to_nothing(kernels: ModuleType) -> None:
    mask = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], dtype=torch.bool)
    positions, links = torch.empty(4, dtype=torch.long), torch.empty(3, 1, 4, dtype=torch.long)
    importlib.import_module("sgl_kernel.speculative").reconstruct_indices_from_tree_mask(
        mask.flatten(), torch.tensor([10]), positions, *links, 1, 4
    )
    assert links[1].tolist() == [[1, -1, -1, -1]]
    assert links[2].tolist() == [[-1, -1, -1, -1]]
    assert positions.tolist() == [10, 11, 10, 10]


@pytest.mark.parametrize("shape", SHAPES)
def test_verification_takes_the_longest_path_that_the_target_chooses(kernels: ModuleType, shape: tuple[int, int, int]) -> None:
    topk, num_steps, num_nodes = shape
    choose = random.Random(4)
    lengths_seen = set()
    for _ in range(40):
        trees = [DraftTree.grown(topk, num_steps, num_nodes, choose) for _ in range(3)]
        # siblings draft different tokens; the target mostly chooses one that was drafted
        drafted = [[0, *(path[-1] for path in tree.paths[1:])] for tree in trees]
        chosen = [[choose.randrange(topk + 1) for _ in range(num_nodes)] for _ in trees]
        links = torch.full((3, 3, num_nodes), -1)
        kernels.build_tree_kernel_efficient_cpu(
            *candidates(trees), torch.tensor([5] * 3), torch.empty(3 * num_nodes**2, dtype=torch.bool),
            torch.empty(3 * num_nodes, dtype=torch.long), *links, topk, num_steps, num_nodes, 1,
        )  # fmt: skip
        predicts = torch.full((3 * num_nodes,), -7, dtype=torch.int32)
        accept_index, accepted = torch.full((3, num_steps + 1), -1, dtype=torch.int32), torch.empty(3, dtype=torch.int32)
        kernels.verify_tree_greedy_cpu(
            predicts=predicts, accept_index=accept_index, accept_token_num=accepted, candidates=torch.tensor(drafted),
            retrive_index=links[0], retrive_next_token=links[1], retrive_next_sibling=links[2], target_predict=torch.tensor(chosen),
        )  # fmt: skip
        for request, tree in enumerate(trees):
            right = [
                path
                for path in tree.paths
                if all(chosen[request][tree.paths.index(path[:depth])] == path[depth] for depth in range(len(path)))
            ]
            longest = max(right, key=len)
            nodes = [tree.paths.index(longest[:depth]) for depth in range(len(longest) + 1)]
            assert accepted[request] == len(longest)
            flat = [request * num_nodes + node for node in nodes]
            assert accept_index[request].tolist() == flat + [-1] * (num_steps + 1 - len(flat))
            assert [int(predicts[place]) for place in flat] == [chosen[request][node] for node in nodes]
            lengths_seen.add(len(longest))
    assert {0, 1} <= lengths_seen


def test_slots_are_written_and_read_back(kernels: ModuleType) -> None:
    table, rows = torch.zeros(4, 12, dtype=torch.int32), torch.tensor([2, 0])
    starts, ends = torch.tensor([1, 3]), torch.tensor([4, 5])
    slots = torch.tensor([11, 12, 13, 21, 22])
    kernels.assign_req_to_token_pool_cpu(rows, table, starts, ends, slots, 12)
    assert table[2].tolist() == [0, 11, 12, 13] + [0] * 8
    assert table[0].tolist() == [0, 0, 0, 21, 22] + [0] * 7
    assert not table[[1, 3]].any()
    back = torch.zeros(5, dtype=torch.long)
    kernels.assign_extend_cache_locs_cpu(rows, table, starts, ends, back, 12)
    assert back.tolist() == slots.tolist()


def test_every_branch_drafts_behind_the_same_prefix(kernels: ModuleType) -> None:
    table = torch.arange(36, dtype=torch.int32).view(3, 12)
    rows, lengths, topk, num_steps = torch.tensor([2, 1]), torch.tensor([3, 5]), 2, 3
    slots = torch.zeros(2 * topk * num_steps, dtype=torch.long)
    kernels.assign_draft_cache_locs_contiguous_cpu(rows, table, lengths, slots, 12, topk, num_steps)
    branches = slots.view(2, topk, num_steps)  # as SGLang divides them up
    draft_table = kernels.build_draft_decode_metadata_cpu(table, rows, lengths, topk, num_steps, 12)
    for request, length in enumerate(lengths.tolist()):
        for branch in range(topk):
            entry = draft_table[request * topk + branch].tolist()
            assert entry[:length] == table[rows[request], :length].tolist()
            assert entry[length : length + num_steps] == branches[request, branch].tolist()
    assert len(set(slots.tolist())) == slots.numel()


def test_moves_between_rounds(kernels: ModuleType) -> None:
    bonus = torch.zeros(2, dtype=torch.int32)
    kernels.fill_bonus_tokens_cpu(torch.tensor([[1, 2, 0, 0], [5, 6, 7, 0]]), torch.tensor([2, 3]), bonus, 4)
    assert bonus.tolist() == [2, 7]
    kept = torch.zeros(5, dtype=torch.long)
    kernels.fill_accept_out_cache_loc_cpu(torch.tensor([[0, 2, -1], [4, -1, -1]]), torch.tensor([30, 31, 32, 33, 34]), kept)
    assert kept.tolist() == [30, 32, 34, 0, 0]
    ids = torch.tensor([1, 2, 3, 8, 9])
    kernels.rotate_input_ids_cpu(ids, torch.tensor([0, 3]), torch.tensor([3, 2]), torch.tensor([4, 10]))
    assert ids.tolist() == [2, 3, 4, 9, 10]
    kernels.rotate_input_ids_cpu(ids, torch.tensor([0, 3]), torch.tensor([3, 2]), torch.tensor([5, 11]), torch.tensor([1, 4]))
    assert ids.tolist() == [3, 5, 4, 10, 11]


def test_cache_rows_move_in_every_layer_even_where_they_overlap(kernels: ModuleType) -> None:
    layers = [torch.randn(8, 2, 3), torch.randn(8, 5).bfloat16()]
    before = [layer.clone() for layer in layers]
    targets, sources = torch.tensor([1, 2, 3]), torch.tensor([2, 3, 6])
    kernels.copy_all_layer_kv_cache_cpu(
        torch.tensor([layer.data_ptr() for layer in layers], dtype=torch.uint64),
        torch.tensor([layer.stride(0) * layer.dtype.itemsize for layer in layers]),
        targets,
        sources,
    )
    for layer, old in zip(layers, before, strict=True):
        for slot in range(8):
            moved = dict(zip(targets.tolist(), sources.tolist(), strict=True)).get(slot, slot)
            assert torch.equal(layer[slot], old[moved])


def test_a_kernel_that_is_not_there_is_named(kernels: ModuleType) -> None:
    with pytest.raises(ImportError, match=r"sgl_kernel\.silu_and_mul: the stand-in for SGLang's kernels"):
        kernels.silu_and_mul  # noqa: B018
