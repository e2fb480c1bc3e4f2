"""Strides of results, while capturing and when run, are eager's: operators by layouts of what they are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F

import torchglass as tg

Tensor = torch.Tensor


def ordered(shape: Sequence[int], order: Sequence[int]) -> Tensor:
    """Dimensions of memory, from the outermost, in this order."""
    return torch.rand([shape[k] for k in order]).permute([order.index(k) for k in range(len(shape))])


LAYOUTS: dict[str, Callable[[Sequence[int]], Tensor]] = {
    "contiguous": torch.rand,
    "channels last": lambda shape: torch.rand(*shape).to(memory_format=torch.channels_last),
    "turned": lambda shape: ordered(shape, (3, 2, 1, 0)),
    "places before batch": lambda shape: ordered(shape, (2, 3, 0, 1)),
    "rows before channels": lambda shape: ordered(shape, (0, 2, 1, 3)),
    "one channel": lambda shape: torch.rand(shape[0], 1, *shape[2:]).expand(*shape),
    "one place": lambda shape: torch.rand(*shape[:2], 1, 1).expand(*shape),
    "one number": lambda shape: torch.rand(1).expand(*shape),
    "part": lambda shape: torch.rand([size + 2 for size in shape])[1:-1, 1:-1, 1:-1, 1:-1],
    "every second": lambda shape: torch.rand(*shape[:3], shape[3] * 2)[..., ::2],
}
LOSSES = (F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.binary_cross_entropy)
SHAPES = [(2, 4, 5, 6), (1, 4, 5, 6), (2, 4, 1, 6)]


def of_pictures(x: Tensor, c: Tensor) -> list[Tensor]:
    mean, scale, deep = torch.zeros(x.shape[1]), torch.ones(x.shape[1]), x[:, :, None]
    return [
        F.batch_norm(x, None, None, training=True), F.batch_norm(x, mean, scale, training=True),
        F.batch_norm(x, mean, scale), F.batch_norm(deep, mean, scale, training=True), F.group_norm(x, 2),
        F.layer_norm(x, x.shape[-1:]), F.interpolate(x, scale_factor=2), F.interpolate(x, size=(3, 4), mode="bilinear"),
        F.interpolate(x, size=(3, 4), mode="bicubic"), F.interpolate(deep, scale_factor=2), F.channel_shuffle(x, 2),
        F.pad(x, (1, 1, 0, 0), mode="reflect"), F.pad(x, (1, 1, 1, 1), mode="replicate"), F.pad(x, (1, 1), value=2.0),
        F.pad(deep, (1, 1, 1, 1, 0, 0), mode="replicate"), F.max_pool2d(x, 1), F.avg_pool2d(x, 1),
        F.pixel_shuffle(x, 2),
        F.grid_sample(x, c[..., :2], align_corners=False), F.grid_sample(c, x[..., :2], align_corners=False),
        F.conv2d(x, torch.ones(3, 4, 1, 1)), F.adaptive_max_pool2d(x, 1), F.unfold(x, 1), F.local_response_norm(x, 2),
    ]  # fmt: skip


def of_places(x: Tensor, c: Tensor) -> list[Tensor]:
    zeros, first = torch.zeros_like(c, dtype=torch.long), torch.tensor([0])
    return [
        x.roll(1, 1), x.roll((1, 0), (0, 2)), x.roll(1), x.flip(1), x.rot90(1, (2, 3)), x.tril(), torch.cat([x, c], 1),
        torch.stack([x, c], 1), x.repeat(1, 2, 1, 1), x.gather(1, zeros), x[:, first], x[first, :, first],
        x.index_select(1, first), x.index_add(1, first, x[:, :1]), x.index_copy(1, first, x[:, :1]),
        x.index_put((first,), x[:1]), x.scatter(1, zeros[:, :1], 1.0), x.masked_fill(x > 0.5, 1), x.sort(1).values,
        x.topk(1, 1).indices, x.cumsum(1), torch.isin(x, c[0, 0, 0]), F.one_hot((x > 0.5).long(), 2), x.unfold(1, 2, 1),
        F.max_pool1d(x[0], 1), torch.diff(x, dim=3), torch.zeros_like(x), torch.fft.fft(x, dim=1), torch.fft.rfft2(x),
        torch.fft.ifft(x, dim=0),
    ]  # fmt: skip


def of_elements(x: Tensor, c: Tensor) -> list[Tensor]:
    classes = (x[:, 0] > 2).long()
    return [
        x + 1, x + c, x * c[0], torch.where(x > 0.5, x, c), x.clamp_min(c), x.logit(0.1), x.pow(c), 2**x, x.double(),
        F.hardtanh(x), F.gelu(x), F.prelu(x, torch.ones(4)), F.rrelu(x), F.glu(x, 3), F.logsigmoid(x), x.nan_to_num(),
        x.softmax(1), x.log_softmax(3), x.sum(1), x.amax(2, keepdim=True), x.argmax(1), x.var(0), x.logsumexp(1),
        x @ c.mT, torch.addr(x[0, 0], c[0, 0, :, 0], c[0, 0, 0], beta=0), torch.complex(x, c), torch.lerp(x, c, 0.5),
        *(loss(x, c, reduction="none") for loss in LOSSES), *(loss(c, x, reduction="none") for loss in LOSSES),
        F.cross_entropy(c, classes, reduction="none"), F.nll_loss(c, classes, reduction="none"),
    ]  # fmt: skip


@pytest.mark.parametrize("made", [of_pictures, of_places, of_elements])
@pytest.mark.parametrize("lie", LAYOUTS)
def test_strides_of_results(made: Callable[[Tensor, Tensor], list[Tensor]], lie: str) -> None:
    """Strides of dimensions of one element say nothing and are left out."""

    def program(x: Tensor, c: Tensor) -> tuple[list[Tensor], list[tuple[int, ...]]]:
        results = made(x, c)
        return results, [result.stride() for result in results]

    compiled = tg.compile(program, fullgraph=True, backend="aot_eager")
    for shape in SHAPES:
        x, c = LAYOUTS[lie](shape), torch.rand(shape)
        (results, known), (wanted, _) = compiled(x, c), program(x, c)
        for place, (result, strides, one) in enumerate(zip(results, known, wanted)):
            found = [_telling(one, lying) for lying in (result.stride(), strides, one.stride())]
            assert found[0] == found[1] == found[2], (place, shape)


def _telling(value: Tensor, strides: Sequence[int]) -> list[int]:
    return [stride for stride, size in zip(strides, value.shape) if size != 1]
