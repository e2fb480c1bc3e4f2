"""Questions about groups of processes, which libraries ask in losses and layers."""

import pytest
import torch
import torch.distributed as dist

import torchglass as tg


def program(x):
    if dist.is_available() and dist.is_initialized():
        return x * dist.get_world_size() + dist.get_rank()
    return x - 1


@pytest.mark.skipif(not dist.is_available(), reason="torch without torch.distributed")
def test_a_group_that_comes_and_goes(tmp_path):
    compiled, x = tg.compile(program, backend="eager", fullgraph=True), torch.ones(2)
    for _ in range(2):
        assert torch.equal(compiled(x), x - 1)
        dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
        try:
            assert torch.equal(compiled(x), x)
        finally:
            dist.destroy_process_group()
    assert torch.equal(compiled(x), x - 1)


@pytest.mark.skipif(not dist.is_available(), reason="torch without torch.distributed")
def test_the_rank_without_a_group_raises_as_in_eager():
    def asks(x):
        return x + dist.get_rank()

    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        tg.compile(asks, backend="eager")(torch.ones(2))
