"""How results lie in memory where PyTorch's meta functions say otherwise than its CPU kernels.

Fake tensors believe the meta functions, and code that asks for strides, or for a ``view``, would be answered wrongly.
Found by running PyTorch's operator database on transposed inputs, each ATen call beside its meta function.
Input: an operator's fake result and its arguments. Output: the same, laid out as the kernel lays it out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .nested import is_mask
from .strides import lies_channels_last, sorted_as_iterated, strides_of_view

aten = torch.ops.aten
Rule = Callable[[Any, tuple[Any, ...]], Any]
LAYOUTS: dict[Any, Rule] = {}
_ANYWHERE: set[Any] = set()


def layout(*targets: Any, anywhere: bool = False) -> Callable[[Rule], Rule]:
    """Enter a rule for some operators. ``anywhere``: kernels of every device lay results out so, not only the CPU's."""

    def enter(rule: Rule) -> Rule:
        for target in targets:
            if target in LAYOUTS:
                raise AssertionError(f"{target} has a rule already")
            LAYOUTS[target] = rule
        if anywhere:
            _ANYWHERE.update(targets)
        return rule

    return enter


def _always(*args: Any, **kwargs: Any) -> bool:
    return True


def _if_only_values(x: torch.Tensor, *args: Any, **kwargs: Any) -> bool:
    """Neither a gradient nor the places of the maxima are wanted."""
    return not ((x.requires_grad and torch.is_grad_enabled()) or kwargs.get("return_indices", args[5:6] == (True,)))


# Functions that PyTorch decomposes for fake tensors alone, and whether their CPU kernel makes its operand contiguous.
_OF_CONTIGUOUS: dict[Any, Callable[..., bool]] = {
    torch.nn.functional.one_hot: _always,
    torch.nn.functional.max_pool1d: _if_only_values,
    torch.max_pool1d: _if_only_values,
}


def as_kernels_take(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Sequence[Any]:
    """The arguments of a call as its CPU kernel takes them, for a function that no fake tensor sees whole."""
    asked = _OF_CONTIGUOUS.get(function) if args and isinstance(args[0], torch.Tensor) else None
    if asked is None or args[0].device.type != "cpu" or not asked(*args, **kwargs):
        return args
    return args[0].contiguous(), *args[1:]


_UNTAGGED = frozenset((aten.leaky_relu.default,))  # element-wise, though torch 2.11 does not say so


@functools.cache
def is_elementwise(target: Any) -> bool:
    """Whether an operator makes a new tensor, element by element."""
    schema = target._schema
    return (
        (torch.Tag.pointwise in target.tags or target in _UNTAGGED)
        and not schema.is_mutable
        and len(schema.returns) == 1
        and schema.returns[0].alias_info is None
    )


_LIKE_THE_OPERAND = frozenset(
    (aten.clone.default, aten._to_copy.default, aten.hardtanh.default, aten.nan_to_num.default)
)


def elementwise(target: Any, result: torch.Tensor, args: tuple[Any, ...]) -> torch.Tensor:
    """An element-wise result with dimensions of one element laid out as the kernels do (``TensorIterator``).

    Operands of one shape that are contiguous, or pictures channels last, give what a new tensor of that shape has.
    Strides of dimensions of one element decide whether what follows takes a picture for channels last.
    """
    operands = [args[n] for n in _operand_places(target) if n < len(args)]
    if operands and all(isinstance(a, torch.Tensor) and a.shape == result.shape for a in operands):
        if all(a.is_contiguous() for a in operands):
            return _new(result)
        if result.dim() == 4 and all(_is_dense_channels_last(a) for a in (result, *operands)):
            return _new(result, torch.channels_last)
    numbers = any(isinstance(a, int | float) for a in operands)
    return _of_unequal_ranks(result, args, [result.dim()] if numbers else [])


@functools.cache
def _operand_places(target: Any) -> tuple[int, ...]:
    """Which positional arguments are operands: tensors, and numbers, which are tensors without dimensions to the
    kernel. None of the operators that make their result as they find their operand.
    """
    if target in _LIKE_THE_OPERAND or target.namespace != "aten":
        return ()
    parameters = enumerate(target._schema.arguments)
    return tuple(n for n, one in parameters if str(one.type) == "Tensor" or one.name in ("self", "other"))


def _new(value: torch.Tensor, memory_format: torch.memory_format = torch.contiguous_format) -> torch.Tensor:
    """As a new tensor of that shape lies, in dimensions of one element too."""
    strides = [1]
    for size in reversed(value.shape[1:]):
        strides.insert(0, strides[0] * max(size, 1))
    made = value if list(value.stride()) == strides[: value.dim()] else value.new_empty(value.shape)
    return made if memory_format is torch.contiguous_format else made.to(memory_format=memory_format)


def _is_dense_channels_last(value: torch.Tensor) -> bool:
    return value.is_contiguous(memory_format=torch.channels_last)


def _of_unequal_ranks(result: torch.Tensor, args: tuple[Any, ...], numbers: list[int]) -> torch.Tensor:
    """An element-wise result laid out as the kernels do (``TensorIterator``) where an operand has fewer dimensions.

    They pass over dimensions that it lacks when they look for an order; meta functions give it strides there, which
    decide where the dimension has one element.
    """
    shape = result.shape
    operands = [a for a in args if isinstance(a, torch.Tensor)]
    lacking = [len(shape) - a.dim() for a in operands]
    if not any(1 in shape[:n] for n in lacking + numbers) or not all(type(size) is int for size in shape):
        return result
    steps = [
        [0] * n + [0 if s == 1 and d != 1 else step for s, d, step in zip(a.shape, shape[n:], a.stride())]
        for a, n in zip(operands, lacking)
    ]
    return _iterated(result, steps)


def _iterated(result: torch.Tensor, steps: list[list[int]]) -> torch.Tensor:
    """Laid out as ``TensorIterator`` orders the dimensions by the ``steps`` of its operands, one list for each."""
    shape = result.shape
    innermost_first = list(range(len(shape) - 1, -1, -1))
    order = sorted_as_iterated(innermost_first, lambda inner, outer: _swaps(inner, outer, steps, shape))
    if order == innermost_first:
        return _new(result)
    strides, size = [0] * len(shape), 1
    for dim in order:
        strides[dim] = size
        size *= shape[dim]
    return result if list(result.stride()) == strides else result.new_empty_strided(shape, strides)


def _swaps(inner: int, outer: int, steps: list[list[int]], shape: torch.Size) -> int:
    """1: the dimension ``outer`` belongs inside ``inner``; -1: it does not; 0: no operand says."""
    for step in steps:
        a, b = step[inner], step[outer]
        if 0 in (a, b):
            continue
        if a != b:
            return 1 if a > b else -1
        if shape[inner] > shape[outer]:
            return 1
    return 0


def laid_out(target: Any, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a call as its CPU kernel lays it out; other devices have kernels of their own."""
    if kwargs.get("memory_format") not in (None, torch.preserve_format):
        return result
    values = result if isinstance(result, tuple) else (result,)
    on_cpu = all(value is None or value.device.type == "cpu" for value in values)
    return LAYOUTS[target](result, args) if on_cpu or target in _ANYWHERE else result


ROW_BY_ROW = dict.fromkeys((
    aten._log_softmax_backward_data.default, aten.huber_loss_backward.default, aten.log_sigmoid_forward.default,
    aten.mse_loss_backward.default, aten.native_layer_norm_backward.default, aten.normal.Tensor_Tensor,
    aten.normal.Tensor_float, aten.normal.float_Tensor, aten.poisson.default, aten.pow.Scalar,
    aten.smooth_l1_loss_backward.default, aten.masked_fill.Scalar, aten.masked_fill.Tensor,
    aten.native_layer_norm.default, aten.tril.default, aten.triu.default,
    aten.grid_sampler_2d.default, aten.grid_sampler_3d.default, aten.isin.Tensor_Tensor, aten.isin.Tensor_Scalar,
    aten.nll_loss2d_forward.default, aten.rrelu_with_noise.default, aten._log_softmax.default, aten.index_add.default,
    aten.index_copy.default, aten.im2col.default, aten.col2im.default,
))  # fmt: skip
"""Operators whose kernels give contiguous results whatever they are given."""


@layout(*ROW_BY_ROW)
def _row_by_row(result: Any, args: tuple[Any, ...]) -> Any:
    if isinstance(result, torch.Tensor):
        return _new(result)
    return tuple(value if value is None else _new(value) for value in result)


@layout(aten.linalg_vector_norm.default, anywhere=True)
def _without_dimensions(result: Any, args: tuple[Any, ...]) -> Any:
    """2.11 leaves dimensions of one element that are counted from the end where they were."""
    x, dims, keepdim = args[0], args[2] if len(args) > 2 else None, args[3:4] == (True,)
    if not dims or keepdim or result.dim() == x.dim() - len(dims):
        return result
    gone = {dim % x.dim() for dim in dims}
    return result.new_empty([size for dim, size in enumerate(x.shape) if dim not in gone])


_LEGIT = aten._native_batch_norm_legit


@layout(aten.native_batch_norm.default, _LEGIT.default, aten._native_batch_norm_legit_functional.default)
def _normalized(result: Any, args: tuple[Any, ...]) -> Any:
    """Pictures that are contiguous and channels last alike are contiguous to it, as long as nothing has gaps."""
    x, last = args[0], _LAST.get(args[0].dim(), torch.contiguous_format)
    contiguous, packed = x.is_contiguous(), all(one is None or one.is_contiguous() for one in args[1:5])
    if result[0] is None or not packed or not (contiguous or x.is_contiguous(memory_format=last)):
        return _as_images(result, x)
    return (_new(result[0], torch.contiguous_format if contiguous else last), *result[1:])


@layout(
    aten.max_unpool2d.default, aten.native_group_norm.default, aten.upsample_nearest2d.default,
    aten._upsample_nearest_exact2d.default, aten.upsample_bilinear2d.default, aten.upsample_bicubic2d.default,
    aten.reflection_pad2d.default, aten.replication_pad2d.default, aten.reflection_pad3d.default,
    aten.replication_pad3d.default, aten.channel_shuffle.default,
)  # fmt: skip
def _as_first(result: Any, args: tuple[Any, ...]) -> Any:
    return _as_images(result, args[0])


_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


@layout(aten.native_batch_norm_backward.default, aten.batch_norm_backward.default)
def _as_second(result: Any, args: tuple[Any, ...]) -> Any:
    return _as_images(result, args[1])


def _as_images(result: Any, images: torch.Tensor) -> Any:
    """Contiguous, or channels last where the images are."""
    last = images.dim() in _LAST and lies_channels_last(images.shape, images.stride())
    wanted = _LAST[images.dim()] if last else torch.contiguous_format
    if isinstance(result, torch.Tensor):
        return _new(result, wanted)
    first = None if result[0] is None else _new(result[0], wanted)
    return (first, *result[1:])


@layout(
    aten.copysign.Tensor, aten.div.Tensor_mode, aten.floor_divide.default, aten.heaviside.default,
    aten.logaddexp.default, aten.logaddexp2.default, aten.logical_and.default, aten.logical_or.default,
    aten.logical_xor.default, aten.logit_backward.default, aten.native_dropout_backward.default,
    aten.special_xlog1py.default, aten.xlogy.Tensor, aten.clamp_min.Tensor, aten.clamp_max.Tensor, aten.complex.default,
    aten.polar.default, aten.mse_loss.default, aten.smooth_l1_loss.default,
)  # fmt: skip
def _of_two(result: Any, args: tuple[Any, ...]) -> Any:
    """Computed in steps, of which the last gives the layout; the kernels take both operands', as ``eq`` does. One of
    them may be a number. Losses may be summed up.
    """
    if not result.dim():
        return result
    first, second = args[:2] if isinstance(args[0], torch.Tensor) else (args[1], args[0])
    return _with_strides(result, torch.eq(first, second).stride())


def _with_strides(result: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    return result if result.stride() == strides else result.new_empty_strided(result.shape, strides)


@layout(aten._prelu_kernel.default, aten.flip.default, aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)
def _as_a_copy(result: Any, args: tuple[Any, ...]) -> Any:
    """They fill a copy, which keeps the strides of what has no gaps, else the order of the dimensions."""
    return torch.empty_like(args[0])


@layout(
    aten.empty_like.default, aten.zeros_like.default, aten.ones_like.default, aten.full_like.default,
    aten.rand_like.default, aten.randn_like.default, aten.randint_like.default, aten.randint_like.low_dtype,
    aten.hardtanh.default, aten.nan_to_num.default, aten.index_put.default, aten.sort.default, aten.sort.stable,
)  # fmt: skip
def _as_without_gaps(result: Any, args: tuple[Any, ...]) -> Any:
    """Strides of what has no gaps stay; the meta function computes those of dimensions of one element anew."""
    x, expected = args[0], 1
    if x.layout is not torch.strided:
        return result
    for stride, size in sorted((s, n) for s, n in zip(x.stride(), x.shape) if n != 1):
        if stride != expected:
            return result
        expected *= size
    if isinstance(result, torch.Tensor):
        return _with_strides(result, x.stride())
    return tuple(_with_strides(value, x.stride()) for value in result)


@layout(aten.index.Tensor)
def _indexed(result: torch.Tensor, args: tuple[Any, ...]) -> torch.Tensor:
    """The kernel walks the source and the indices, which lie as they are, at once; masks are not known."""
    x, given = args[0], {dim: index for dim, index in enumerate(args[1]) if index is not None}
    if not given or any(map(is_mask, given.values())):
        return result
    indices = torch.broadcast_tensors(*given.values())
    adjacent = max(given) - min(given) < len(given)
    left = [step for dim, step in enumerate(x.stride()) if dim not in given]
    before, after = (left[: min(given)], left[min(given) :]) if adjacent else ([], left)
    steps = [[*before, *(0 for _ in indices[0].shape), *after]]
    shape = (*(1 for _ in before), *indices[0].shape, *(1 for _ in after))
    for index in indices:
        own = strides_of_view(index.shape, index.stride(), shape) or ()
        steps.append([0 if size == 1 != wide else step for step, size, wide in zip(own, shape, result.shape)])
    return _iterated(result, steps)


@layout(aten.roll.default)
def _as_joined(result: Any, args: tuple[Any, ...]) -> Any:
    """Two parts joined, dimension by dimension; without dimensions it rolls what was flattened."""
    x, dims = args[0], args[2] if len(args) > 2 else ()
    if not dims or not x.numel():
        return result
    for shift, dim in zip(args[1], dims):
        first = -shift % x.shape[dim]
        x = torch.cat([x.narrow(dim, first, x.shape[dim] - first), x.narrow(dim, 0, first)], dim)
    return x


@layout(aten.addr.default)
def _of_three(result: Any, args: tuple[Any, ...]) -> Any:
    """Computed of all three, also where ``beta`` is 0 and the first says nothing."""
    return _with_strides(result, torch.addcmul(args[0], args[1].unsqueeze(1), args[2]).stride())


@layout(aten.soft_margin_loss.default, anywhere=True)
def _of_first_dtype(result: Any, args: tuple[Any, ...]) -> Any:
    """The kernel's numbers for each pair are of the first operand's dtype, which the meta function promotes."""
    return result.to(args[0].dtype)


@layout(aten.huber_loss.default, anywhere=True)
def _for_each_of_first(result: Any, args: tuple[Any, ...]) -> Any:
    return _for_each(_of_first_dtype(result, args), args)


@layout(aten.binary_cross_entropy.default)
def _for_each(result: Any, args: tuple[Any, ...]) -> Any:
    return _as_a_copy(result, args) if result.dim() else result


@layout(
    aten.hardsigmoid_backward.default, aten.hardswish_backward.default, aten.hardtanh_backward.default,
    aten.softplus_backward.default,
)  # fmt: skip
def _of_gradient_first(result: Any, args: tuple[Any, ...]) -> Any:
    """The kernel walks the gradient and the operand, which the meta function takes for all."""
    return _with_strides(result, torch.mul(args[0], args[1]).stride())


@layout(aten.binary_cross_entropy_backward.default)
def _as_copy_of_second(result: Any, args: tuple[Any, ...]) -> Any:
    return _as_a_copy(result, args[1:])


@layout(aten.multilabel_margin_loss_forward.default)
def _loss_of_one(result: Any, args: tuple[Any, ...]) -> Any:
    """The loss of one sample without a batch is a number, for the meta function one of a batch unless it is reduced."""
    return (result[0].reshape(()), *result[1:]) if args[0].dim() < 2 else result


@layout(aten.nansum.default, anywhere=True)
def _sum_of_numbers(result: torch.Tensor, args: tuple[Any, ...]) -> torch.Tensor:
    """No dimensions are all of them, for the meta function none."""
    x, *dims = args[:2]
    if dims != [[]]:
        return result
    return result.new_empty([1] * x.dim() if args[2:3] == (True,) else [])


@layout(aten.any.dims, aten.all.dims, anywhere=True)
def _truth_of_each(result: torch.Tensor, args: tuple[Any, ...]) -> torch.Tensor:
    """No dimensions are none, and each element is asked."""
    return result.contiguous() if args[1:2] == ([],) else result


@layout(aten._fft_c2c.default)
def _transformed(result: torch.Tensor, args: tuple[Any, ...]) -> torch.Tensor:
    return _innermost(result, args[0], _outer_first(args[0], args[1])) if args[1] else result


@layout(aten._fft_r2c.default)
def _transformed_from_real(result: torch.Tensor, args: tuple[Any, ...]) -> torch.Tensor:
    dims = args[1]
    return _innermost(result, args[0], [*_outer_first(args[0], dims[:-1]), dims[-1]])


@layout(aten._fft_c2r.default)
def _transformed_to_real(result: torch.Tensor, args: tuple[Any, ...]) -> torch.Tensor:
    """The last dimension alone becomes real; the others are transformed before."""
    x, dims = args[0], args[1]
    if len(dims) > 1:
        x = _innermost(x, x, _outer_first(x, dims[:-1]))
    return _innermost(result, x, [dims[-1]])


@layout(aten.view.default, aten._unsafe_view.default)
def _viewed(result: torch.Tensor, args: tuple[Any, ...]) -> torch.Tensor:
    """The meta function takes what the kernel refuses, and gives dimensions of one element other strides, by which what
    follows takes a picture for channels last or not.
    """
    x, shape = args[0], result.shape
    if not all(type(n) is int for n in (*x.shape, *x.stride(), *shape)) or 1 not in (*x.shape, *shape):
        return result
    strides = strides_of_view(x.shape, x.stride(), shape)
    if strides is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two"
            " contiguous subspaces). Use .reshape(...) instead."
        )
    return result if result.stride() == strides else result.as_strided(shape, strides, result.storage_offset())


@layout(aten._scaled_dot_product_flash_attention_for_cpu.default)
def _with_sums(result: Any, args: tuple[Any, ...]) -> Any:
    """The sums of float64's exponentials are float64; PyTorch 2.11's meta function says float32."""
    output, sums, *rest = result
    return (output, sums.double() if output.dtype is torch.float64 else sums, *rest)


@layout(aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
def _as_bags_of_floats(result: Any, args: tuple[Any, ...]) -> Any:
    """Where bags are summed without noting which bag a number is of, bfloat16 is as float is; the meta function has
    not heard.
    """
    weight, target = args[0], aten._embedding_bag.default
    if weight.dtype is not torch.bfloat16:
        return result
    like = torch.empty_strided(weight.shape, weight.stride(), device=weight.device)
    rest = [a.float() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args[1:]]
    return (result[0], *target(like, *rest)[1:])


def _outer_first(x: torch.Tensor, dims: list[int]) -> list[int]:
    return sorted(dims, key=x.stride, reverse=True)


def _innermost(result: torch.Tensor, x: torch.Tensor, dims: list[int]) -> torch.Tensor:
    """As MKL's transforms of ``x`` leave it: the dimensions ``dims``, in that order, inside all others, whose order
    stays. Other libraries give what the meta function says.
    """
    if not torch.backends.mkl.is_available():
        return result
    last = [dim % x.dim() for dim in dims]
    order = [*_outer_first(x, _parted(x.dim(), last)), *last]
    empty = torch.empty([result.shape[dim] for dim in order], dtype=result.dtype, device=result.device)
    laid = empty.permute([order.index(dim) for dim in range(x.dim())])
    return result if result.stride() == laid.stride() else laid


def _parted(count: int, last: list[int]) -> list[int]:
    """The dimensions that are not in ``last``, as ``std::partition`` leaves them: equal strides keep its order."""
    order, start, end = list(range(count)), 0, count
    while start < end:
        if order[start] not in last:
            start += 1
        elif order[end - 1] in last:
            end -= 1
        else:
            order[start], order[end - 1] = order[end - 1], order[start]
    return order[:start]
