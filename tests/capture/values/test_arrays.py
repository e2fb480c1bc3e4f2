"""NumPy arrays that constants make: views stay views of one array, and writes are seen through all of them."""

import numpy as np
import pytest
import torch

import torchglass as tg

from ..tables import tables

WHOLE, BREAKS, whole, breaks = tables()


@whole
def written_after_its_use(x):
    m = np.zeros(3)
    t = torch.tensor(m)
    m += 1
    return x + t, m


@whole
def item_written(x):
    m = np.arange(3)
    m[1] = 7
    return x * torch.tensor(m), m


@whole
def rows_written(x):
    m = np.zeros((2, 3))
    for n, row in enumerate(m):
        row[n] = 1
    return x, m


@whole
def same_array(x):
    m = np.arange(3)
    n = np.asarray(m)
    n += 1
    return x, m, n, n is m


@whole
def views_of_views(x):
    m = np.arange(24.0).reshape(2, 3, 4)
    part = m[:, ::-1].transpose(2, 0, 1)[1]
    part[0, 0] = -1
    return x, m, part, m.T, m.ravel()


@whole
def views_of_columns(x):
    m = np.asfortranarray(np.ones((2, 3))) * 2
    return x, m, m[1], m.T


@whole
def views_of_other_types(x):
    m = np.zeros(2, dtype=complex)
    m.imag[0] = 3
    return x, m, m.imag


@whole
def not_writeable(x):
    m = np.broadcast_to(np.arange(3), (2, 3))
    return x, m


@breaks
def row_written_at_a_branch(x):
    m = np.zeros((2, 3))
    row = m[0]
    if x.sum() > 0:
        row[1] = 5
    return x, m, row


@breaks
def row_written_with_data(x):
    m = np.zeros((2, 3))
    row = m[1]
    row[0] = x.sum().item()
    return x, m


@breaks
def filled(x):
    m = np.zeros((2, 3))
    m[0].fill(3)
    return x, m


def facts(results):
    """What can be compared, and which arrays share memory."""
    arrays = [r for r in results if isinstance(r, np.ndarray)]
    shared = [[bool(np.shares_memory(a, b)) for b in arrays] for a in arrays]
    return [(a.strides, a.flags.writeable) for a in arrays], shared, [a.copy() for a in arrays]


@pytest.mark.parametrize("name", [*WHOLE, *BREAKS])
def test_as_eager(name):
    tg.reset()
    function = (WHOLE | BREAKS)[name]
    compiled = tg.compile(function, backend="eager", fullgraph=name in WHOLE)
    for _ in range(2):
        mine, theirs = compiled(torch.ones(3)), function(torch.ones(3))
        torch.testing.assert_close(mine[0], theirs[0])
        np.testing.assert_equal(facts(mine), facts(theirs))
        assert [r for r in mine if isinstance(r, bool)] == [r for r in theirs if isinstance(r, bool)]
        for array in mine:
            if isinstance(array, np.ndarray) and array.flags.writeable:
                array[...] = 99  # the next call has its own
