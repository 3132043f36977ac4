"""Stand-in for SGLang's compiled CPU kernels, in plain torch: test support, see the README beside this folder."""

from __future__ import annotations

from sgl_kernel import attention as attention
from sgl_kernel.moves import (
    copy_all_layer_kv_cache_cpu,
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
    rotate_input_ids_cpu,
)
from sgl_kernel.slots import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
)
from sgl_kernel.tree import build_tree_kernel_efficient_cpu, verify_tree_greedy_cpu

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "rotate_input_ids_cpu",
    "verify_tree_greedy_cpu",
]


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(name)
    # what SGLang imports on trial it imports inside try/except ImportError
    raise ImportError(f"sgl_kernel.{name}: the stand-in for SGLang's kernels in Breakeven's tests does not have it")
