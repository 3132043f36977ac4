"""Draft trees: built from the drafter's candidates or from a mask, and verified greedily against the target's choices.

A tree of n nodes: node 0 is the last token that is certain (the bonus token of the round before), the others are drafts, parents
before children. Links are -1 where there is none: `next_token` names a node's first child, `next_sibling` its parent's next child.
R requests; outputs are written into the tensors that are given.
"""

from __future__ import annotations

import torch

__all__ = ["build_tree_kernel_efficient_cpu", "reconstruct_indices_from_tree_mask", "verify_tree_greedy_cpu"]

QUERIES_ONLY = 1  # SGLang's mask mode for CPUs: n x n, the prefix left out


def build_tree_kernel_efficient_cpu(
    parent_list: torch.Tensor,
    selected_index: torch.Tensor,
    lengths: torch.Tensor,
    tree_mask: torch.Tensor,
    positions: torch.Tensor,
    retrieve_index: torch.Tensor,
    next_token: torch.Tensor,
    next_sibling: torch.Tensor,
    topk: int,
    depth: int,
    num_nodes: int,
    mode: int,
) -> None:
    """Node i + 1 is candidate selected_index[r, i]. Candidates come in groups of `topk`, one group a node that was expanded:
    group 0 grew from the root, group g from candidate parent_list[r, g].

    selected_index [R, n - 1] ascending; lengths [R] tokens before the tree; tree_mask R * n * n, positions R * n, links [R, n].
    """
    if int(mode) != QUERIES_ONLY:
        raise NotImplementedError(f"tree mask mode {mode}: the stand-in for SGLang's kernels has {QUERIES_ONLY} only")
    for request, length in enumerate(lengths.tolist()):
        selected = selected_index[request].tolist()
        node_of = {candidate: node for node, candidate in enumerate(selected, start=1)}
        parents = [-1]
        for candidate in selected:
            group = candidate // topk
            parents.append(0 if group == 0 else node_of[int(parent_list[request, group])])
        _write(
            parents,
            int(length),
            tree_mask.view(-1)[request * num_nodes**2 : (request + 1) * num_nodes**2].view(num_nodes, num_nodes),
            positions.view(-1)[request * num_nodes : (request + 1) * num_nodes],
            next_token[request],
            next_sibling[request],
        )
        retrieve_index[request] = torch.arange(num_nodes) + request * num_nodes


def reconstruct_indices_from_tree_mask(
    tree_mask: torch.Tensor,
    lengths: torch.Tensor,
    positions: torch.Tensor,
    retrieve_index: torch.Tensor,
    next_token: torch.Tensor,
    next_sibling: torch.Tensor,
    num_requests: int,
    num_nodes: int,
) -> None:
    """The same links from a mask in which row i is true for the ancestors of node i: a parent is the last of them.

    A node without ancestors is no part of the tree; so the n-gram drafter fills up a tree with fewer matches than nodes.
    """
    masks = tree_mask.view(-1)[: num_requests * num_nodes**2].view(num_requests, num_nodes, num_nodes).bool()
    for request, mask in enumerate(masks):
        ancestors = [[other for other in range(node) if mask[node, other]] for node in range(num_nodes)]
        _write(
            [found[-1] if found else -1 for found in ancestors],
            int(lengths[request]),
            None,
            positions.view(-1)[request * num_nodes : (request + 1) * num_nodes],
            next_token[request],
            next_sibling[request],
        )
        retrieve_index[request] = torch.arange(num_nodes) + request * num_nodes


def _write(
    parents: list[int],
    length: int,
    mask: torch.Tensor | None,
    positions: torch.Tensor,
    next_token: torch.Tensor,
    next_sibling: torch.Tensor,
) -> None:
    """Links, positions (length + depth) and, where wanted, the mask of a tree given by the parent of every node."""
    next_token.fill_(-1)
    next_sibling.fill_(-1)
    if mask is not None:
        mask.fill_(False)
    last_child: dict[int, int] = {}
    depths: list[int] = []
    for node, parent in enumerate(parents):
        depths.append(0 if parent < 0 else depths[parent] + 1)
        positions[node] = length + depths[node]
        if mask is not None:
            if parent >= 0:
                mask[node] = mask[parent]
            mask[node, node] = True
        if parent < 0:
            continue
        if parent in last_child:
            next_sibling[last_child[parent]] = node
        else:
            next_token[parent] = node
        last_child[parent] = node


def verify_tree_greedy_cpu(
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    target_predict: torch.Tensor,
) -> None:
    """From the root on, follow the child that is the target's own choice, as long as there is one.

    candidates, target_predict [R, n]: drafted token of a node, and the target's choice after it. Written: accept_index [R, most
    accepted + 1] the flat nodes on the path, root first; accept_token_num [R] drafts accepted; predicts [R * n] the tokens chosen,
    at the flat node after which they were chosen, the bonus token last.
    """
    tokens, chosen = candidates.tolist(), target_predict.tolist()
    indices, children, siblings = retrive_index.tolist(), retrive_next_token.tolist(), retrive_next_sibling.tolist()
    for request in range(len(tokens)):
        node, accepted = 0, 0
        accept_index[request, 0] = indices[request][0]
        while accepted + 1 < accept_index.shape[1]:
            child = children[request][node]
            while child != -1 and tokens[request][child] != chosen[request][node]:
                child = siblings[request][child]
            if child == -1:
                break
            predicts[indices[request][node]] = chosen[request][node]
            node, accepted = child, accepted + 1
            accept_index[request, accepted] = indices[request][node]
        predicts[indices[request][node]] = chosen[request][node]
        accept_token_num[request] = accepted
