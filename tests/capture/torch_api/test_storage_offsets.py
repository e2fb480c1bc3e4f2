"""Places in an input's memory, counted from where the storage begins: an input's offset is part of the program."""

import pytest
import torch

import torchglass as tg

BACKENDS = ("eager", "aot_eager", "glass")


def reads(a):
    return a.as_strided((3,), (2,), 1) + 0


def reads_through_a_view(a):
    return torch.as_strided(a[1:], (3,), (2,), 1) + 0


def writes(a):
    a.as_strided((3,), (2,), 1).add_(100)


def reads_before(a):
    return torch.as_strided(a, (2,), (1,), a.storage_offset() - 1) * 2


def asks(a):
    return a + a.storage_offset(), a._is_view(), a[2:]._is_view()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", [reads, reads_through_a_view, writes, reads_before, asks])
def test_inputs_that_begin_elsewhere(program, backend):
    compiled = tg.compile(program, backend=backend)
    for begin, end in ((3, 11), (4, 12), (3, 11), (4, 12)):
        mine, theirs = torch.arange(20.0), torch.arange(20.0)
        expected, found = program(theirs[begin:end]), compiled(mine[begin:end])
        torch.testing.assert_close(found, expected)
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_input_that_begins_its_memory_and_then_does_not(backend):
    compiled = tg.compile(reads, backend=backend)
    for begin in (0, 3, 0):
        x = torch.arange(20.0)[begin : begin + 8]
        torch.testing.assert_close(compiled(x), reads(x))


def test_a_view_where_none_was():
    compiled = tg.compile(asks, backend="eager", fullgraph=True)
    for x in (torch.arange(8.0), torch.arange(9.0)[:8], torch.arange(8.0)):
        torch.testing.assert_close(compiled(x), asks(x))
