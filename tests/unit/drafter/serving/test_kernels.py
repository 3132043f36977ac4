from __future__ import annotations

import pytest
import torch

from breakeven.drafter.serving.kernels import Matmul, rms_norm


@pytest.mark.parametrize("rows", [1, 2, 4, 5, 8, 33])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_packed_product_is_the_plain_one(rows, dtype):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(96, 64, generator=generator, dtype=dtype)
    x = torch.randn(rows, 64, generator=generator, dtype=dtype)
    with torch.inference_mode():
        product = Matmul(weight.clone())(x)
    tolerance = 1e-4 if dtype == torch.float32 else 0.2
    torch.testing.assert_close(product.float(), x.float() @ weight.float().T, rtol=tolerance, atol=tolerance)


def test_without_the_packed_product_the_plain_one_serves(monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    weight, x = torch.randn(96, 64), torch.randn(3, 64)
    torch.testing.assert_close(Matmul(weight)(x), x @ weight.T, rtol=1e-4, atol=1e-4)


def test_rms_norm_divides_by_the_root_mean_square():
    x = torch.tensor([[3.0, 4.0]])
    expected = x / torch.tensor(12.5).sqrt() * torch.tensor([1.0, 2.0])
    torch.testing.assert_close(rms_norm(x, torch.tensor([1.0, 2.0]), 0.0), expected)
