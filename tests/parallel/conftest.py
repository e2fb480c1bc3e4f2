"""``ranks``: two processes of a gloo group, for all tests of a session."""

from collections.abc import Iterator

import pytest
import torch.distributed
from tests.parallel.ranks import Ranks


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("there is no gloo")
    processes = Ranks()
    yield processes
    processes.stop()
