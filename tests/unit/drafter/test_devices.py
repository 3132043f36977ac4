from __future__ import annotations

import pytest
import torch

from breakeven.drafter.devices import chosen_device
from breakeven.errors import UsageError


def test_what_is_there_is_taken():
    assert chosen_device("cpu") == torch.device("cpu")
    assert chosen_device(torch.device("cpu")) == torch.device("cpu")
    assert chosen_device(None).type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "meta", "", "cpu:x"])
def test_what_is_not_there_is_refused(device):
    with pytest.raises(UsageError, match="device is"):
        chosen_device(device)
