from __future__ import annotations

import enum

from torchvision import absent

__getattr__ = absent("torchvision.transforms")


class InterpolationMode(enum.Enum):
    """Looked into when other modules are imported."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"
