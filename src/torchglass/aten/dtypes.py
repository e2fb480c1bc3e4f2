"""Which dtypes, numbers and sizes PyTorch's CPU kernels refuse although fake tensors take them.

``x & y`` of floats passes the meta functions; the kernel says ``"bitwise_and_cpu" not implemented for 'Float'``. A
capture that believes them would compute what eager refuses, or drop the operation where nothing reads its result. So
each operator is run once in a process with each combination of dtypes, on a few real numbers, and what it says is kept;
where fake tensors do not look at numbers or sizes either, with each combination of these, if the sizes are small.
Input: an operator, its arguments and its fake result. Output: the kernel's error, or None.
"""

from __future__ import annotations

import functools
import re
from types import EllipsisType
from typing import Any

import torch

from .nested import is_mask, tensors_in
from .sizes import elements, hinted, hints
from .writes import is_random

# What kernels say of dtypes. Other errors of a call cut small (of shapes, of data) say nothing about the real one.
_OF_DTYPES = re.compile(
    r"support|implemented|can't be cast|may not be a|non-complex|Could not run|handles only|dtype|scalar type|"
    r"must be long|but got (Bool|Byte|Char|Short|Int|Long|UInt\d*|Half|BFloat16|Float|Double|Complex\w*)\b"
)
_OF_DIMENSIONS = re.compile(r"Dimension out of range|must be 1 dimension")  # nor do they of how many there are
_MANY = 1 << 12  # elements: larger tensors are cut to two a side, where the operator takes that
_NAMED = (str, bool, torch.dtype, torch.layout, torch.memory_format)  # arguments that choose another kernel
_PRODUCTS = frozenset(("addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "dot", "mm", "mv", "vdot"))
# What reads or writes at places that whole numbers say, and looks whether they are there.
_AT_PLACES = frozenset(
    ("embedding", "gather", "index", "index_add", "index_copy", "index_fill", "index_put", "index_reduce",
     "index_select", "put", "scatter", "scatter_add", "scatter_reduce", "take")
)  # fmt: skip
_OF_PAIRS = frozenset(("huber_loss", "mse_loss", "smooth_l1_loss", "soft_margin_loss"))
# What takes tensors of any sizes, or says that they do not fit, besides the element-wise. Others may believe the sizes
# they are given: oneDNN's recurrent layer with a weight cut to two a side and a hidden size of 48 writes past it; a
# convolution of bfloat16 of op_db, cut so, ended the process with torch 2.11.
_TAKING_ANY_SIZES = _OF_PAIRS | _PRODUCTS | _AT_PLACES | frozenset(
    ("all", "amax", "amin", "aminmax", "any", "argmax", "argmin", "count_nonzero", "linalg_vector_norm", "logsumexp",
     "max", "mean", "median", "min", "mode", "nanmedian", "nansum", "norm", "prod", "std", "std_mean", "sum", "var",
     "var_mean",
     "cummax", "cummin", "cumprod", "cumsum", "logcumsumexp", "argsort", "kthvalue", "sort", "topk",
     "_cdist_forward", "_trilinear", "_log_softmax", "_safe_softmax", "_softmax", "native_layer_norm", "_prelu_kernel",
     "_to_copy", "bucketize", "cat", "clone", "complex", "constant_pad_nd", "copy", "flip", "floor_divide", "full_like",
     "ones_like", "roll", "slice_scatter", "stack", "tril", "triu", "trace",
     "zeros_like", "_conj_physical", "_fft_c2c", "_fft_r2c")
)  # fmt: skip
_CAREFUL = _OF_PAIRS | _PRODUCTS | _AT_PLACES | {"convolution"}  # with whole numbers
# What fake tensors do not ask about sizes.
_OF_SIZES = frozenset(
    ("_log_softmax", "_softmax", "bucketize", "diagonal_scatter", "index_add", "index_put", "index_reduce",
     "index_select", "multinomial", "native_batch_norm", "put", "searchsorted", "select_scatter", "slice_scatter")
)  # fmt: skip
# What they do not ask about numbers and the number of dimensions, nor PyTorch's Python of some.
_OF_NUMBERS = frozenset(
    ("bernoulli", "celu", "cummax", "cummin", "div", "floor_divide", "fmod", "mvlgamma", "randint_like", "random",
     "remainder", "smooth_l1_loss", "sort", "uniform")
)  # fmt: skip
_known: dict[Any, Exception | None] = {}


def refusal(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Exception | None:
    """The error that the kernel raises for arguments of these dtypes, or sizes."""
    if operator is torch.ops.aten.select.int:
        return _no_such_place(*args)
    if not _is_tried(operator):
        return None
    args, kwargs = hinted(args), {name: hinted(value) for name, value in kwargs.items()}
    name = _name(operator)
    kind = _kind_and_sizes if name in _OF_SIZES else _kind_and_numbers if name in _OF_NUMBERS else _kind
    key = (operator, *map(kind, args), *((name, kind(value)) for name, value in kwargs.items()))
    if key not in _known:
        if _takes_generator(operator):
            kwargs = kwargs | {"generator": torch.Generator()}
        error = _tried(operator, args, kwargs, result)
        if error is ...:
            return None  # smaller tensors may come
        _known[key] = error
    return _known[key]


def _no_such_place(x: torch.Tensor, dim: int, index: Any) -> Exception | None:
    """Fake tensors of 2.11 show memory behind a tensor's end."""
    if not x.dim() or -x.shape[dim] <= index < x.shape[dim]:
        return None
    return IndexError(f"select(): index {index} out of range for tensor of size {list(x.shape)} at dimension {dim}")


def _kind(value: Any) -> Any:
    """What the choice of a kernel depends on."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.device.type, value.dim() == 0, elements(value) == 0
    if isinstance(value, (list, tuple)):
        return tuple(dict.fromkeys(map(_kind, value)))
    if isinstance(value, _NAMED):
        return value
    return type(value), value if value in (0, 1) else None


def _kind_and_sizes(value: Any) -> Any:
    """All that an operator's arguments are, but for the numbers in tensors."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.device.type, tuple(hints(value.shape))
    if isinstance(value, (list, tuple)):
        return tuple(map(_kind_and_sizes, value))
    return (type(value), value) if isinstance(value, (int, float)) else _kind(value)


def _kind_and_numbers(value: Any) -> Any:
    """All but the sizes."""
    return (*_kind(value), value.dim()) if isinstance(value, torch.Tensor) else _kind_and_sizes(value)


@functools.cache
def _is_tried(operator: Any) -> bool:
    """PyTorch's own operators are, but for views, which have no kernel, and those that move the one generator on."""
    if operator.namespace != "aten" or operator.is_view:
        return False
    return not is_random(operator) or _takes_generator(operator)


@functools.cache
def _takes_generator(operator: Any) -> bool:
    return any(parameter.name == "generator" for parameter in operator._schema.arguments)


def _tried(
    operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> Exception | EllipsisType | None:
    """What the operator raises with small real arguments like these. None, too, on other devices, where nothing is
    tried. ``...``: neither is it made to make large tensors, nor given sizes that it might rely on.
    """
    read, made = tensors_in([*args, *kwargs.values()]), tensors_in(result)
    if any(t.device.type != "cpu" for t in (*read, *made)) or _may_hold_places(operator, read):
        return None
    if any(t.layout is not torch.strided or t.is_quantized for t in (*read, *made)):
        return ...
    large = sum(map(elements, (*read, *made))) > _MANY
    if large and operator is torch.ops.aten.convolution.default:
        args, large = _small_convolution(*args), False
    elif large and not (read and _may_be_cut(operator)):
        return ...
    try:
        real = functools.partial(_real, large=large, whole=_whole_number(operator))
        operator(*map(real, args), **{name: real(value) for name, value in kwargs.items()})
    except Exception as error:
        masks = any(map(is_mask, read))  # how many places they say is data
        of_sizes = _name(operator) in _OF_SIZES and not masks and (not large or _OF_DIMENSIONS.search(str(error)))
        told = of_sizes or _name(operator) in _OF_NUMBERS or _OF_DTYPES.search(str(error))
        return type(error)(*error.args) if told else None
    return None


def _small_convolution(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int,
) -> tuple[Any, ...]:  # fmt: skip
    """Two channels to two, one place to start at: sizes that belong together."""
    sizes = (1, 2, *((size - 1) * step + 1 for size, step in zip(hints(weight.shape[2:]), dilation)))
    small = torch.ones(sizes, dtype=x.dtype), torch.ones(2, 2, *hints(weight.shape[2:]), dtype=weight.dtype)
    biased = None if bias is None else torch.ones(2, dtype=bias.dtype)
    return *small, biased, stride, padding, dilation, transposed, output_padding, 1


@functools.cache
def _may_be_cut(operator: Any) -> bool:
    """Whether sizes that do not belong together lead to an error at worst."""
    return torch.Tag.pointwise in operator.tags or _name(operator) in _TAKING_ANY_SIZES


@functools.cache
def looks_up(operator: Any) -> bool:
    """Whether the operator raises where whole numbers say a place that is not there."""
    return operator.namespace == "aten" and _name(operator) in _AT_PLACES


def _name(operator: Any) -> str:
    """Without the ``_`` of the one in place."""
    name: str = operator._schema.name
    return name.removeprefix("aten::").removesuffix("_")


def _may_hold_places(operator: Any, read: list[torch.Tensor]) -> bool:
    """Whether whole numbers may say where in another tensor to read: made-up ones might lead a kernel that does not
    check them out of it (``linalg_ldl_solve`` ends the process at pivots that are none).
    """
    whole = [t for t in read if not (t.dtype.is_floating_point or t.dtype.is_complex or t.dtype is torch.bool)]
    return 0 < len(whole) < len(read) and torch.Tag.pointwise not in operator.tags and _name(operator) not in _CAREFUL


@functools.cache
def _whole_number(operator: Any) -> int:
    """What whole numbers in tensors are. Zeros are indices of anything; nothing is divided by them."""
    return int(torch.Tag.pointwise in operator.tags or _name(operator) in _OF_NUMBERS)


def _real(value: Any, large: bool, whole: int) -> Any:
    """A real argument like a fake one."""
    if isinstance(value, torch.Tensor):
        shape = [min(size, 2) if large else size for size in hints(value.shape)]
        number = 1 if value.dtype.is_floating_point or value.dtype.is_complex else whole
        return torch.full(shape, number, dtype=value.dtype, device="cpu")
    return type(value)(_real(item, large, whole) for item in value) if isinstance(value, (list, tuple)) else value
