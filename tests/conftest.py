"""What all tests share: the devices to run on, and repeatable random search."""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import settings

# `repeatable` finds the same examples in each run; HYPOTHESIS_PROFILE=fresh looks for new ones.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("fresh", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


@pytest.fixture(params=DEVICES if torch.cuda.is_available() else DEVICES[:1])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Each device there is: the CPU, and CUDA where it is available."""
    return torch.device(request.param)
