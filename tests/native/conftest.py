"""What the tests of guard tables share."""

import pytest
import torch
from tests.native.guard_tables import Net

from torchglass import _native


@pytest.fixture(scope="module", params=[64, 0], ids=["each dict", "all dicts at once"])
def many_dicts(request):
    """Tables look at each of a few dicts, and ask of many first whether any in the process has changed."""
    before = _native.set_many_dicts(request.param)
    yield
    _native.set_many_dicts(before)


@pytest.fixture
def net() -> Net:
    return Net()


@pytest.fixture
def x() -> torch.Tensor:
    return torch.zeros(2, 4)
