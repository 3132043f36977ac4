"""SGLang imports this one function from here."""

from __future__ import annotations

from sgl_kernel.tree import reconstruct_indices_from_tree_mask

__all__ = ["reconstruct_indices_from_tree_mask"]
