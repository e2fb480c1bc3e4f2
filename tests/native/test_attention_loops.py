"""``_native.attention`` against attention in float64 and against PyTorch's."""

import itertools
import math

import pytest
import torch

from torchglass._native import attention, attention_runs

pytestmark = pytest.mark.skipif(not attention_runs, reason="no AVX-512")

flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
INF = float("inf")


def heads(batch, count, length, depth, seed=0):
    """As a linear layer leaves them: heads side by side."""
    x = torch.randn(batch, length, count * depth, generator=torch.Generator().manual_seed(seed))
    return x.view(batch, length, count, depth).transpose(1, 2)


def run(query, key, value, mask=None, causal=False, scale=None):
    batch, count, queries, depth = query.shape
    out = torch.full((batch, queries, count, value.shape[3]), math.nan).transpose(1, 2)
    sums = torch.full((batch, queries, count), math.nan).transpose(1, 2)
    spread = None if mask is None else mask.expand(batch, count, queries, key.shape[2])
    attention(query, key, value, spread, causal, depth**-0.5 if scale is None else scale, out=(out, sums))
    return out, sums


def exact(query, key, value, mask=None, causal=False, scale=None):
    scores = query.double() @ key.double().transpose(-1, -2) * (query.shape[3] ** -0.5 if scale is None else scale)
    if mask is not None:
        scores = scores + mask.double()
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -INF)
    weights = scores.softmax(-1).nan_to_num(0)
    return weights @ value.double(), torch.where((scores == -INF).all(-1), 0.0, scores.logsumexp(-1))


LENGTHS = [(1, 1), (7, 5), (16, 16), (32, 8), (33, 41), (64, 300), (70, 13), (128, 128)]
DEPTHS = [(1, 1), (8, 8), (20, 33), (64, 64), (96, 40), (300, 16)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), LENGTHS)
def test_of_all_sizes(queries, keys, causal):
    for depth, width in DEPTHS:
        query, key, value = heads(2, 3, queries, depth), heads(2, 3, keys, depth, 1), heads(2, 3, keys, width, 2)
        for mask in (None, torch.randn(3, queries, keys), torch.randn(2, 1, 1, keys), torch.randn(queries, 1)):
            expected, sums = exact(query, key, value, mask, causal)
            found, found_sums = run(query, key, value, mask, causal)
            torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=2e-6)
            torch.testing.assert_close(found_sums.double(), sums, rtol=1e-6, atol=2e-6)


@pytest.mark.parametrize("causal", [False, True])
def test_is_as_exact_as_pytorch(causal):
    ours, theirs = [], []
    for seed in range(5):
        query, key, value = (heads(2, 4, 128, 64, 3 * seed + k) for k in range(3))
        expected = exact(query, key, value, None, causal)[0]
        ours.append((run(query, key, value, None, causal)[0] - expected).square().mean())
        theirs.append((flash(query, key, value, 0.0, causal)[0] - expected).square().mean())
    assert (sum(ours) / sum(theirs)) ** 0.5 < 1.3


def test_layouts():
    dense = [torch.randn(2, 3, 40, 16) for _ in range(3)]
    one_head = torch.randn(2, 1, 40, 16).expand(2, 3, 40, 16)
    inside = torch.randn(2, 3, 40, 64)[..., 5:21]
    for query, key, value in itertools.product((dense[0], inside), (dense[1], one_head), (dense[2], one_head, inside)):
        expected, sums = exact(query, key, value)
        found, found_sums = run(query, key, value)
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=2e-6)
        torch.testing.assert_close(found_sums.double(), sums, rtol=1e-6, atol=2e-6)


def test_masks_that_hide():
    query, key, value = heads(1, 2, 40, 16), heads(1, 2, 50, 16, 1), heads(1, 2, 50, 16, 2)
    mask = torch.randn(1, 2, 40, 50)
    mask[0, 0, 3] = -INF  # a query that sees nothing
    mask[0, 1, 35, 2:] = -INF
    mask[0, 1, 4] = torch.finfo(torch.float32).min
    expected, sums = flash(query, key, value, attn_mask=mask)
    found, found_sums = run(query, key, value, mask)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found_sums, sums)
    assert found[0, 0, 3].eq(0).all() and found_sums[0, 0, 3] == 0


def test_numbers_that_are_none():
    query, key, value = heads(1, 2, 40, 16), heads(1, 2, 50, 16, 1), heads(1, 2, 50, 16, 2)
    query[0, 0, 5, 2] = math.nan
    query[0, 1, 33, 0] = INF
    value[0, 1, 7, 3] = math.nan
    value[0, 1, 8, 4] = INF
    expected, sums = flash(query, key, value)
    found, found_sums = run(query, key, value)
    torch.testing.assert_close(found, expected, equal_nan=True)
    torch.testing.assert_close(found_sums, sums, equal_nan=True)


def test_large_scores():
    query, key, value = (heads(1, 1, 64, 32, k) * 40 for k in range(3))
    torch.testing.assert_close(run(query, key, value)[0].double(), exact(query, key, value)[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        run(query, key, value, scale=-2.0)[0].double(), exact(query, key, value, scale=-2.0)[0], rtol=1e-4, atol=1e-3
    )


def test_any_number_of_threads():
    query, key, value = (heads(3, 1, 300, 32, k) for k in range(3))
    results, threads = [], torch.get_num_threads()
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            results.append(run(query, key, value, causal=True)[0])
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(results[0], r) for r in results)


def test_sums_that_nobody_wants():
    query = heads(1, 1, 32, 16)
    out = torch.empty(1, 1, 32, 16)
    attention(query, query, query, None, False, 0.25, out=(out, None))
    torch.testing.assert_close(out, run(query, query, query)[0])


def arguments(**changed):
    x = torch.randn(1, 2, 8, 16)
    given = {"query": x, "key": x, "value": x, "mask": None, "causal": False, "scale": 0.25}
    given |= {"out": (torch.empty(1, 2, 8, 16), torch.empty(1, 2, 8))} | changed
    return list(given.values())[:6], {"out": given["out"]}


@pytest.mark.parametrize(
    ("changed", "error", "named"),
    [
        ({"query": 3}, ValueError, "query"),
        ({"query": torch.randn(2, 8, 16)}, ValueError, "query"),
        ({"query": torch.randn(1, 2, 0, 16)}, ValueError, "query"),
        ({"query": torch.randn(1, 2, 16, 8).transpose(2, 3)}, ValueError, "query"),
        ({"key": torch.randn(1, 2, 9, 16)}, ValueError, "key"),
        ({"key": torch.randn(1, 2, 8, 16).double()}, ValueError, "key"),
        ({"key": None}, TypeError, "key"),
        ({"value": torch.randn(1, 2, 8, 16, device="meta")}, ValueError, "value"),
        ({"value": torch.randn(1, 1, 8, 16)}, ValueError, "value"),
        ({"mask": torch.randn(8, 8)}, ValueError, "mask"),
        ({"mask": torch.ones(1, 2, 8, 8, dtype=torch.bool)}, ValueError, "mask"),
        ({"scale": "large"}, TypeError, "real number"),
        ({"out": (torch.empty(1, 2, 8, 15), None)}, ValueError, r"out\[0\]"),
        ({"out": (torch.empty(1, 2, 8, 16), torch.empty(1, 2, 8, 1))}, ValueError, r"out\[1\]"),
        ({"out": torch.empty(1, 2, 8, 16)}, TypeError, "out="),
    ],
)
def test_errors_name_the_argument(changed, error, named):
    args, kwargs = arguments(**changed)
    with pytest.raises(error, match=named):
        attention(*args, **kwargs)


def test_wrong_numbers_of_arguments():
    args, kwargs = arguments()
    for wrong in (lambda: attention(), lambda: attention(*args), lambda: attention(*args[:5], **kwargs)):
        with pytest.raises(TypeError, match="takes just these"):
            wrong()
    with pytest.raises(TypeError, match="takes just these"):
        attention(*args, output=kwargs["out"])
