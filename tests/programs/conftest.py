"""Each program's artifacts go to a folder of its own."""

import pytest

import torchglass as tg


@pytest.fixture(autouse=True)
def folder(tmp_path):
    tg.reset()
    with tg.prepare_debug(tmp_path / "glass"):
        yield tmp_path / "glass"
    tg.reset()
