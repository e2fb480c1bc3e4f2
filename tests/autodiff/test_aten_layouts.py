"""Fake results lie in memory as the kernels' do: every rule beside its kernel, on transposed operands."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves, tree_map_only

import torchglass as tg
from torchglass.aten.layouts import LAYOUTS
from torchglass.torch_compat import fake_of, new_fake_mode

aten = torch.ops.aten


def turned(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(shape[::-1], generator=generator).permute(*range(len(shape))[::-1])


x, y, number = turned(4, 6), turned(4, 6), torch.tensor(2.0)
gaps = torch.rand(2, 7, 16).unfold(0, 2, 1)[..., ::2, :]
odd = torch.rand(60).as_strided((2, 5, 1, 6), (30, 6, 1, 1))  # the place's stride is no new tensor's
BROADCAST = (turned(4, 1, 6), turned(3, 6))
x3, ones, none = turned(4, 6, 5), torch.ones(6), torch.zeros(0)
images = torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last)
gray = torch.rand(2, 1, 4, 4).expand(2, 3, 4, 4)
one_image = torch.rand(4, 4, 1, 3).permute(2, 3, 0, 1)
turned_images = turned(2, 3, 4, 4)
fields = torch.rand(2, 2, 5, 6).permute(0, 2, 3, 1)
three, where = torch.ones(3), torch.arange(16).view(4, 4).expand(2, 3, 4, 4).to(memory_format=torch.channels_last)
places = torch.zeros(3, 7, dtype=torch.long).t()
WAVES = [x3 + 0j, x3.contiguous() + 0j, x3.transpose(0, 1) + 0j, (torch.rand(4, 1, 1) + 0j).expand(4, 6, 5)]
CHOICES = itertools.permutations if torch.__version__ >= "2.13" else itertools.combinations  # before, fakes may raise
DIMS = [dims for n in (1, 2, 3) for dims in CHOICES(range(3), n)]
norm = (ones, ones, ones, ones, ones)
bags = [
    (table, torch.tensor([1, 0, 3]), torch.tensor([0, 2]), False, mode, False, scale)
    for table in (torch.ones(4, 6).bfloat16(), x.bfloat16(), torch.ones(4, 6))
    for mode, scale in ((0, None), (1, None), (2, None), (0, torch.ones(3, dtype=table.dtype)))
]
CALLS = {
    aten._embedding_bag.default: bags,
    aten._embedding_bag_forward_only.default: bags,
    aten._log_softmax_backward_data.default: [(x, x, 1, torch.float32)],
    aten.huber_loss_backward.default: [(x, x, y, 0, 1.0)],
    aten.log_sigmoid_forward.default: [(x,)],
    aten.mse_loss_backward.default: [(number, x, y, 1)],
    aten.native_layer_norm_backward.default: [(x, x, [6], torch.ones(4, 1), torch.ones(4, 1), ones, ones, [True] * 3)],
    aten.normal.Tensor_Tensor: [(x, y)],
    aten.normal.Tensor_float: [(x, 1.0)],
    aten.normal.float_Tensor: [(1.0, x)],
    aten.poisson.default: [(x,)],
    aten.linalg_vector_norm.default: [(ones[:1], 2, [-1]), (x[:, :1], 2, [-1]), (x[:1, :1], 1, [0, -1]), (x, 2, [-1])],
    aten.pow.Scalar: [(2.0, x)],
    aten.hardsigmoid_backward.default: [(x, y.contiguous()), (y.contiguous(), x)],
    aten.hardswish_backward.default: [(x, y.contiguous()), (y.contiguous(), x)],
    aten.hardtanh_backward.default: [(x, y.contiguous(), 0.2, 0.8), (y.contiguous(), x, 0.2, 0.8)],
    aten.softplus_backward.default: [(x, y.contiguous(), 1, 20), (y.contiguous(), x, 1, 20)],
    aten.smooth_l1_loss_backward.default: [(number, x, y, 1, 1.0)],
    aten.native_batch_norm.default: [
        (x3, ones, ones, ones, ones, True, 0.1, 1e-5),
        (x3, ones, ones, ones, ones, False, 0.1, 1e-5),
        *((some, *[three] * 4, True, 0.1, 1e-5) for some in (images, gray, one_image, turned_images)),
        (one_image, three, three, torch.ones(6)[::2], three, True, 0.1, 1e-5),
    ],
    aten.native_batch_norm_backward.default: [
        (x3, x3, *norm, True, 1e-5, [True] * 3),
        (images, images, *[three] * 5, True, 1e-5, [True] * 3),
    ],
    aten.batch_norm_backward.default: [(x3, x3, *norm, True, 1e-5, [True] * 3, none)],
    aten.max_unpool2d.default: [(images, where, [8, 8]), (gray, where, [8, 8])],
    aten.native_group_norm.default: [(images, None, None, 2, 3, 16, 1, 1e-5)],
    aten.reflection_pad2d.default: [(images, [1, 2, 0, 1]), (gray, [1, 2, 0, 1]), (x3, [1, 1, 1, 1])],
    aten.replication_pad2d.default: [(images, [1, 2, 0, 1]), (gray, [1, 2, 0, 1]), (x3, [1, 1, 1, 1])],
    aten.reflection_pad3d.default: [(images.unsqueeze(2), [1, 1, 1, 1, 0, 0]), (gray[None], [1, 1, 1, 1, 0, 0])],
    aten.replication_pad3d.default: [(images.unsqueeze(2), [1, 1, 1, 1, 1, 1]), (gray[None], [1, 1, 1, 1, 1, 1])],
    aten.channel_shuffle.default: [(images, 3), (gray, 3), (turned_images, 3)],
    aten.upsample_nearest2d.default: [(images, [8, 8]), (gray, [8, 8])],
    aten._upsample_nearest_exact2d.default: [(images, [8, 8]), (gray, [8, 8])],
    aten.upsample_bilinear2d.default: [(images, [8, 8], False), (gray, [8, 8], False)],
    aten.upsample_bicubic2d.default: [(images, [8, 8], False), (gray, [8, 8], False)],
    aten.grid_sampler_2d.default: [
        (one, grid, mode, 0, False)
        for one in (images, turned_images)
        for grid in (fields, fields.mT.contiguous().mT)
        for mode in (0, 1, 2)
    ],
    aten.grid_sampler_3d.default: [
        (x5, torch.rand(3, 4, 4, 3, 2).permute(4, 3, 2, 1, 0), mode, 0, False)
        for x5 in (images.unsqueeze(2), images.unsqueeze(2).contiguous())
        for mode in (0, 1)
    ],
    aten.isin.Tensor_Tensor: [(x, y), (x, x[0]), (images, x), (turned(40, 60), turned(40, 60))],
    aten.isin.Tensor_Scalar: [(x, 0.5), (images, 0.5)],
    aten.nll_loss2d_forward.default: [
        (images, torch.zeros(4, 4, 2, dtype=torch.long).permute(2, 1, 0), None, reduction, -100) for reduction in (0, 1)
    ],
    aten.rrelu_with_noise.default: [(x, torch.empty_like(x), 0.1, 0.3, training) for training in (True, False)],
    aten.addr.default: [
        (z, ones[:4], ones, {"beta": beta}) for z in (x, x.contiguous(), x[0], number) for beta in (0, 1)
    ],
    aten.binary_cross_entropy.default: [
        (a, b, None, reduction)
        for a, b in ((x, y.contiguous()), (x.contiguous(), y), (gaps, gaps))
        for reduction in (0, 1)
    ],
    aten.binary_cross_entropy_backward.default: [
        (a, b, a.contiguous(), None, 0) for a, b in ((x, y.contiguous()), (x.contiguous(), y))
    ]
    + [(number, x, y, None, 1)],
    aten.masked_fill.Scalar: [(x, x > 0.5, 0.0), (x, torch.ones(6, dtype=torch.bool), 0.0)],
    aten.masked_fill.Tensor: [(x, x > 0.5, number)],
    aten.native_layer_norm.default: [(x3, [5], None, None, 1e-5)],
    aten.tril.default: [(x,), (x3,)],
    aten.triu.default: [(x,), (x3,)],
    aten.flip.default: [(x, [0]), (gaps, [1])],
    aten.index.Tensor: [
        (x3, [places, places]),
        (x3, [None, places]),
        (x3, [places, None, places]),
        (torch.arange(5.0), [places]),
        (x3.expand(2, 4, 6, 5), [None, places, places[:1]]),
    ],
    aten.logit_backward.default: [(x, y, None)],
    aten.native_dropout_backward.default: [(x, y > 0.5, 2.0)],
    aten.index_fill.int_Scalar: [(x, 0, torch.tensor([1]), 3.0), (gaps, 2, torch.tensor([1]), 3.0)],
    aten.index_fill.int_Tensor: [(x, 0, torch.tensor([1]), number), (gaps, 2, torch.tensor([1]), number)],
    aten._fft_c2c.default: [(waves, dims, 0, True) for waves in WAVES for dims in DIMS],
    aten._fft_r2c.default: [(waves.real, dims, 0, half) for waves in WAVES for dims in DIMS for half in (True, False)],
    aten._fft_c2r.default: [(waves, dims, 0, 2 * waves.shape[dims[-1]] - 2) for waves in WAVES for dims in DIMS],
    aten._scaled_dot_product_flash_attention_for_cpu.default: [
        (rows.to(dtype), rows.to(dtype), rows.to(dtype))
        for rows in [torch.ones(2, 4, 3, 8)]
        for dtype in (torch.float32, torch.float64)
    ],
    aten._prelu_kernel.default: [
        (x, torch.ones(1, 1)),
        (torch.rand(1, 3, 1, 1).to(memory_format=torch.channels_last), torch.ones(1, 3, 1, 1)),
    ],
    aten.multilabel_margin_loss_forward.default: [
        (scores, torch.zeros_like(scores, dtype=torch.long), reduction)
        for scores in (x, x[0], number)
        for reduction in (0, 1, 2)
    ],
    aten.nansum.default: [
        (z, dims, keepdim) for z in (x, number) for dims in ([], [0], None) for keepdim in (True, False)
    ],
    aten.any.dims: [(z, dims) for z in (x, gaps, gray, number) for dims in ([], [0], None)],
    aten.all.dims: [(z, dims) for z in (x, gaps, gray, number) for dims in ([], [0], None)],
    aten.roll.default: [
        (gray, [1], [1]),
        (images[:1], [1], [0]),
        (images, [0, 1], [0, 1]),
        (x, [1], [0]),
        (images, [1, 2], [0, 3]),
        (images, [1]),
        (gaps, [1], [1]),
        (x3, [1], [2]),
    ],
    aten.im2col.default: [(z, [n, n], [1, 1], [0, 0], [1, 1]) for z in (images, turned_images) for n in (1, 2)],
    aten.col2im.default: [(turned(2, 12, 16), [4, 4], [1, 1], [1, 1], [0, 0], [1, 1])],
    aten._log_softmax.default: [(x, 1, False), (odd, 1, False)],
    aten.index_add.default: [(z, 0, torch.tensor([0]), z[:1]) for z in (x, odd, gaps)],
    aten.index_copy.default: [(z, 0, torch.tensor([0]), z[:1]) for z in (x, odd, gaps)],
    aten.index_put.default: [(z, [torch.tensor([0])], number) for z in (x, odd, gaps)],
    aten.sort.default: [(z, 1) for z in (x, odd, gaps)],
    aten.sort.stable: [(z, {"stable": True}) for z in (x, odd, gaps)],
    aten.full_like.default: [(z, 1.0) for z in (x, odd, gaps)],
    aten.randint_like.default: [(z, 5) for z in (x, odd, gaps)],
    aten.randint_like.low_dtype: [(z, 1, 5) for z in (x, odd, gaps)],
    aten.huber_loss.default: [(a, b, reduction) for a, b in ((x, y.contiguous()), (odd, odd)) for reduction in (0, 1)],
    aten.soft_margin_loss.default: [(x, y.contiguous(), 0), (odd, odd, 0), (odd, odd, 1)],
    aten.mse_loss.default: [(a, b, reduction) for a, b in ((x, y), (x, odd[0, 0, 0])) for reduction in (0, 1)],
    aten.smooth_l1_loss.default: [(a, b, reduction) for a, b in ((x, y), (odd, odd + 1)) for reduction in (0, 1)],
    aten.complex.default: [(x, y), BROADCAST, (odd, odd)],
    aten.polar.default: [(x, y), BROADCAST, (odd, odd)],
    aten.view.default: [(x3, [4, 6, 5, 1]), (turned(4, 1, 6).unsqueeze(2), [4, 1, 2, 3])],
}
CALLS[aten._unsafe_view.default] = CALLS[aten.view.default]
for like in (aten.empty_like, aten.zeros_like, aten.ones_like, aten.rand_like, aten.randn_like):
    CALLS[like.default] = [(x,), (odd,), (gaps,), (odd, {"memory_format": torch.contiguous_format})]
for mapped in (aten.hardtanh, aten.nan_to_num):
    CALLS[mapped.default] = [(x,), (odd,), (gaps,)]
CALLS[aten._native_batch_norm_legit.default] = CALLS[aten.native_batch_norm.default]
CALLS[aten._native_batch_norm_legit_functional.default] = CALLS[aten.native_batch_norm.default][:-1]
for of_two in LAYOUTS.keys() - CALLS.keys():
    rounding = {"rounding_mode": "floor"} if of_two is aten.div.Tensor_mode else {}
    CALLS[of_two] = [(x, y, rounding), (x, number, rounding), (*BROADCAST, rounding)]
CALLS[aten.floor_divide.default] += [(x, 2)]


@pytest.mark.parametrize("target", LAYOUTS, ids=str)
def test_fake_results_lie_as_the_kernels_do(target):
    for call in CALLS[target]:
        args, kwargs = (call[:-1], call[-1]) if isinstance(call[-1], dict) else (call, {})
        real = target(*args, **kwargs)
        mode = new_fake_mode()
        fakes = tree_map_only(torch.Tensor, lambda value, mode=mode: fake_of(mode, value), args)
        with mode:
            fake = target(*fakes, **kwargs)
        assert [strides(value) for value in tree_leaves(fake)] == [strides(value) for value in tree_leaves(real)], args
        values = [[value for value in tree_leaves(results) if value is not None] for results in (fake, real)]
        kinds = [[(value.dtype, value.shape) for value in some] for some in values]
        assert kinds[0] == kinds[1]


def strides(value: torch.Tensor | None) -> tuple[int, ...] | None:
    return None if value is None else value.stride()


def layout(value: torch.Tensor | None) -> tuple[int, ...] | None:
    return None if value is None else tuple(s for s, d in zip(value.stride(), value.shape) if d != 1)


def outcome(call: Callable[[], torch.Tensor]) -> tuple[int, ...] | str:
    try:
        return call().stride()
    except (RuntimeError, ValueError):
        return "refused"


def permuted(draw: random.Random, sizes: list[int], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    order = draw.sample(range(len(sizes)), len(sizes))
    wide = torch.zeros([sizes[k] for k in order], dtype=dtype)
    return wide.permute([order.index(k) for k in range(len(sizes))])


def test_views() -> None:
    """Dimensions of one element between others, and strides of such dimensions in the result."""
    draw, mode = random.Random(0), new_fake_mode()
    outcomes = set()
    for _ in range(500):
        real = permuted(draw, sizes := [draw.choice((1, 1, 2, 3)) for _ in range(draw.randint(1, 4))])
        fake, wanted = fake_of(mode, real), draw.sample([1, *sizes], len(sizes) + 1)
        with mode:
            found = outcome(lambda fake=fake, wanted=wanted: fake.view(wanted))
        assert found == outcome(lambda: real.view(wanted)), (real.shape, real.stride(), wanted)  # noqa: B023
        outcomes.add(found == "refused")
    assert outcomes == {True, False}


def test_gathered_by_indices() -> None:
    """Indices of several dimensions that lie in any order, side by side or apart, some broadcast."""
    draw, mode = random.Random(0), new_fake_mode()
    for _ in range(500):
        real = permuted(draw, [draw.choice((1, 2, 3)) for _ in range(draw.randint(1, 4))])
        shape = [draw.choice((1, 2, 3)) for _ in range(draw.randint(1, 3))]
        given: list[torch.Tensor | None] = []
        for _ in range(real.dim()):
            own = [size if draw.random() < 0.8 else 1 for size in shape][draw.randint(0, 1) :]
            given.append(permuted(draw, own, torch.long) if own and draw.random() < 0.6 else None)
        if all(index is None for index in given):
            continue
        with mode:
            fake = aten.index.Tensor(fake_of(mode, real), [None if i is None else fake_of(mode, i) for i in given])
        wanted = aten.index.Tensor(real, given)
        shapes = [None if index is None else (index.shape, index.stride()) for index in given]
        assert fake.stride() == wanted.stride(), (real.shape, real.stride(), shapes)


OF_UNEQUAL = [
    torch.add, torch.div, torch.eq, torch.maximum, torch.atan2, torch.pow, torch.fmod, torch.copysign, torch.xlogy,
    lambda a, b: torch.where(a > 0, a, b), lambda a, b: torch.addcmul(a, b, b), lambda a, b: torch.clamp(a, b, b),
]  # fmt: skip


@pytest.mark.parametrize("function", OF_UNEQUAL)
def test_operands_of_unequal_ranks(function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
    """Permuted operands, of which one lacks dimensions that may have one element."""
    draw, mode = random.Random(0), new_fake_mode()

    def operand(sizes: list[int]) -> torch.Tensor:
        order = draw.sample(range(len(sizes)), len(sizes))
        wide = torch.ones([sizes[k] if draw.random() < 0.75 else 1 for k in order])
        return wide.permute(sorted(range(len(sizes)), key=order.__getitem__))

    for _ in range(300):
        sizes = [draw.choice((1, 2, 3)) for _ in range(draw.randint(1, 4))]
        pair = [operand(sizes), operand(sizes[draw.randint(0, len(sizes)) :])]
        draw.shuffle(pair)
        with mode:
            fake = function(*(fake_of(mode, x) for x in pair))
        assert layout(fake) == layout(function(*pair)), [(x.shape, x.stride()) for x in pair]


ONE_PLACE = [torch.rand(64).as_strided((2, 8, 1, 1), (8, 1, *last)) for last in ((8, 8), (8, 1), (1, 1))]
ONE_PLACE += [torch.rand(64).as_strided((2, 1, 4, 4), (16, 1, 4, 1))]
ALIKE = [
    torch.relu, torch.sigmoid, torch.exp, torch.neg, torch.isnan, torch.square, torch.clone, F.gelu, F.silu, F.hardtanh,
    F.leaky_relu, lambda x: x + x, lambda x: x + 1, lambda x: 1 - x, lambda x: x / 2, lambda x: x > 0, lambda x: x**1.5,
    lambda x: x.clamp(0, 1), lambda x: torch.where(x > 0, x, 0.0), lambda x: torch.lerp(x, x, 0.5),
    lambda x: x.double(), lambda x: x.masked_fill(x > 0, 0), lambda x: F.dropout(x, 0.5),
    lambda x: F.prelu(x, torch.ones(1)),
    lambda x: F.batch_norm(x, torch.zeros(x.shape[1]), torch.ones(x.shape[1])),
    lambda x: F.batch_norm(x, None, None, training=True), lambda x: x.mean(1, keepdim=True), torch.nan_to_num,
]  # fmt: skip


@pytest.mark.parametrize("function", ALIKE)
def test_pictures_of_one_place(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """They are contiguous and channels last alike; which strides they have decides how what follows lies."""
    for picture in ONE_PLACE:
        mode = new_fake_mode()
        with mode:
            fake = function(fake_of(mode, picture))
        assert fake.stride() == function(picture).stride(), (picture.shape, picture.stride())


def test_a_network_that_pools_to_one_place_gives_contiguous_pictures() -> None:
    net = torch.nn.Sequential(
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Conv2d(3, 4, 1), torch.nn.BatchNorm2d(4), torch.nn.ReLU(),
        torch.nn.Upsample((4, 4), mode="bilinear"), torch.nn.Conv2d(4, 2, 3),
    ).eval()  # fmt: skip
    with torch.no_grad():
        result = tg.compile(net)(torch.rand(2, 3, 8, 8))
    assert result.is_contiguous()


TOKENS = {
    "reshape": lambda x: x.permute(0, 2, 1).reshape(1, 16, 8, 8),
    "view": lambda x: x.transpose(1, 2).view(1, 16, 8, 8),
    "unflatten": lambda x: x.mT.unflatten(-1, (8, 8)),
}
TAKES_PICTURES = [
    lambda x: F.conv2d(x, torch.ones(4, 16, 1, 1)), lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    lambda x: F.interpolate(x, scale_factor=2), lambda x: F.max_pool2d(x, 2), lambda x: F.avg_pool2d(x, 2),
    lambda x: F.group_norm(x, 4), lambda x: F.dropout(F.conv2d(x, torch.ones(4, 16, 1, 1)), 0.5),
]  # fmt: skip


@pytest.mark.parametrize("backend", ["aot_eager", "glass"])
@pytest.mark.parametrize("takes", TAKES_PICTURES)
@pytest.mark.parametrize("turn", TOKENS.values(), ids=TOKENS)
def test_one_picture_made_of_tokens(turn, takes, backend) -> None:
    """Its batch of one element has a stride by which ATen takes it for contiguous."""
    tokens = torch.rand(1, 64, 16)
    results = []
    for call in (lambda x: takes(turn(x)), tg.compile(lambda x: takes(turn(x)), backend=backend)):
        torch.manual_seed(0)
        results.append(call(tokens))
    assert results[0].stride() == results[1].stride()
    torch.testing.assert_close(results[1], results[0])


def test_strides_of_what_is_gathered_decide_branches() -> None:
    places = (torch.arange(6).view(2, 3) % 5).t()

    def program(x):
        found = x[places]
        return torch.as_strided(found, (4,), (1,)), found.is_contiguous(), found.stride()

    wanted, *facts = program(torch.arange(5.0))
    got, *known = tg.compile(program)(torch.arange(5.0))
    assert torch.equal(got, wanted) and known == facts


@pytest.mark.parametrize("backend", ["aot_eager", "glass"])
@pytest.mark.parametrize("trains", [False, True])
def test_functions_that_fake_tensors_do_not_see_whole(backend, trains) -> None:
    """Their kernels copy what is not contiguous, and a view of the result is one of that."""
    numbers, classes = torch.rand(2, 6, 4).transpose(1, 2).requires_grad_(trains), (turned(4, 6) * 3).long()

    def program(x, places):
        pooled = F.max_pool1d(x, 2)
        hot = F.one_hot(places, 3)
        return pooled, pooled.stride(), F.max_pool1d(x, 2, return_indices=True)[1], hot, hot.view(-1), hot.stride()

    got, wanted = tg.compile(program, backend=backend)(numbers, classes), program(numbers, classes)
    for one, other in zip(got, wanted):
        if isinstance(one, torch.Tensor):
            assert torch.equal(one, other) and one.stride() == other.stride()
        else:
            assert one == other
