"""Random programs of pointwise operations, reductions, views and reads by index, over odd shapes, strides and dtypes.

    python -m tests.lower.random_programs 0 1000 [backward]    seeds 0 to 999; prints those where eager and glass differ

Inputs are small whole numbers, and most operations keep them small and whole, so that results are the same in every
order of summing and dtypes, values and layouts can be compared exactly. Operations that round (``exp``, ``mean``, a
softmax) are compared closely. What would make a last bit large (``fmod`` of a rounded value, say) is not written:
every program is made beside a copy of itself whose rounded values are a little larger, and the two have to agree.
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

import torchglass as tg

Tensor = torch.Tensor
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
SIZES = (0, 1, 1, 2, 3, 4, 5, 7, 8, 16, 17, 33)
Step = Callable[[list[Tensor]], Tensor]


class Program:
    """A program by its seed: ``inputs()`` and ``__call__``; ``text`` says what it does."""

    def __init__(self, seed: int, length: int = 10) -> None:
        self.seed, self.text = seed, [""]
        self.rng = random.Random(seed)
        self.inputs = [self._input() for _ in range(self.rng.randint(1, 3))]
        self.steps: list[Step] = []
        values, moved = list(self.inputs), list(self.inputs)
        while len(self.steps) < length:
            made = self._step(values, moved)
            if made is None:
                continue
            (text, step), value, nudged = made
            self.steps.append(step)
            self.text.append(f"v{len(values)} = {text}  # {value.dtype} {tuple(value.shape)} {value.stride()}")
            values.append(value)
            moved.append(nudged)
        count = len(values)
        self.returned = sorted(self.rng.sample(range(len(self.inputs), count), min(5, length))) + [count - 1]

    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        values = list(inputs)
        for step in self.steps:
            values.append(step(values))
        return [values[k] for k in self.returned]

    # -- inputs ------------------------------------------------------------------------------------------------------
    def _input(self) -> Tensor:
        rng = self.rng
        dtype = rng.choice((*FLOATS, torch.float32, *INTEGERS, torch.bool))
        shape = [rng.choice(SIZES) for _ in range(rng.randint(0, 4))]
        return self._laid_out(self._numbers(shape, dtype))

    def _numbers(self, shape: list[int], dtype: torch.dtype, low: int = -3, high: int = 4) -> Tensor:
        generator = torch.Generator().manual_seed(self.rng.randrange(2**31))
        low = 0 if dtype in (torch.uint8, torch.bool) else low
        high = 2 if dtype is torch.bool else high
        return torch.randint(low, high, shape, generator=generator).to(dtype)

    def _laid_out(self, x: Tensor) -> Tensor:
        """The same numbers in another layout: transposed, with gaps, expanded, shifted."""
        kind = self.rng.choice(("plain", "plain", "permuted", "gaps", "expanded", "shifted"))
        if kind == "permuted" and x.dim() > 1:
            order = self.rng.sample(range(x.dim()), x.dim())
            back = sorted(range(x.dim()), key=lambda k: order[k])
            return x.permute(order).contiguous().permute(back)
        if kind == "gaps" and x.dim():
            wide = torch.zeros(*x.shape[:-1], 2 * x.shape[-1], dtype=x.dtype)
            wide[..., ::2] = x
            return wide[..., ::2]
        if kind == "expanded" and x.dim():
            k = self.rng.randrange(x.dim())
            return x.narrow(k, 0, min(1, x.shape[k])).expand(x.shape) if x.shape[k] else x
        if kind == "shifted":
            whole = torch.zeros(x.numel() + 5, dtype=x.dtype)
            view = whole[3 : 3 + x.numel()].view(x.shape)
            return view.copy_(x)
        return x

    # -- steps -------------------------------------------------------------------------------------------------------
    def _step(self, values: list[Tensor], moved: list[Tensor]) -> tuple[tuple[str, Step], Tensor, Tensor] | None:
        """A random step that eager takes and whose result is small; None where the choice does not fit.

        Behind its value the one that it has on ``moved``: the values, each rounded one a little larger.
        """
        make = self.rng.choice(MAKERS)
        made = make(self.rng, values)
        if made is None:
            return None
        try:
            value, nudged = made[1](values), made[1](moved)
        except (RuntimeError, IndexError, TypeError, ValueError):
            return None
        whole = value.dtype.is_floating_point and "rounds" not in made[0]
        large = value.numel() and value.dtype is not torch.bool and bool((value.double().abs() > 100).any())
        if value.numel() > 4000 or (whole and large) or value.dtype.is_complex:
            return None
        if same(value, nudged):
            return None
        return made, value, larger(nudged)


def larger(x: Tensor) -> Tensor:
    """``x`` with what is no multiple of 1/8 larger by some units of the last place, by one in half precision."""
    if not x.is_floating_point():
        return x
    units = 1 if x.dtype in (torch.bfloat16, torch.float16) else 4
    return torch.where(x * 8 == (x * 8).round(), x, x * (1 + units * torch.finfo(x.dtype).eps))


def same(want: Tensor, got: Tensor) -> str:
    """What differs between eager's tensor and ours, or ''."""
    for fact in ("dtype", "shape"):
        if getattr(want, fact) != getattr(got, fact):
            return f"{fact} {getattr(got, fact)} instead of {getattr(want, fact)}"
    if want.numel() and any(a != b for a, b, d in zip(want.stride(), got.stride(), want.shape) if d != 1):
        return f"strides {got.stride()} instead of {want.stride()}"
    try:
        bounds = {"rtol": 2e-2, "atol": 2e-2} if want.dtype in (torch.bfloat16, torch.float16) else {}
        torch.testing.assert_close(got, want, equal_nan=True, **bounds)
    except AssertionError as error:
        return str(error).replace("\n", " ")[:300]
    return ""


def difference(seed: int, backward: bool = False) -> str:
    """How ``Program(seed)`` differs between eager and glass, or ''; with ``backward``, its gradients too."""
    program = Program(seed)
    try:
        want = outcome(program, program.inputs, backward)
    except RuntimeError:
        return ""  # eager has no such derivative
    tg.reset()
    try:
        got = outcome(tg.compile(program.__call__, fullgraph=True), program.inputs, backward)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    names = [f"v{k}" for k in program.returned] + [f"gradient {k}" for k in range(len(want))]
    found = [(name, same(a, b)) for name, a, b in zip(names, want, got) if a is not None]
    return "; ".join(f"{name}: {text}" for name, text in found if text)


def outcome(call: Callable[..., list[Tensor]], inputs: list[Tensor], backward: bool) -> list[Any]:
    """Outputs, and the gradients of their sum by the inputs that have some (None for the others)."""
    if not backward:
        return call(*inputs)
    leaves = [x.detach().requires_grad_(x.is_floating_point()) for x in inputs]
    outputs = call(*leaves)
    ends = [y for y in outputs if y.requires_grad]
    outputs = [y.detach() for y in outputs]
    wanted = [x for x in leaves if x.requires_grad]
    if not ends:
        return outputs
    found = torch.autograd.grad(ends, wanted, [torch.ones_like(y) for y in ends], allow_unused=True)
    return [*outputs, *(None if g is None else g.contiguous() for g in found)]


# -- what steps there are ----------------------------------------------------------------------------------------------
Made = "tuple[str, Step] | None"
MAKERS: list[Callable[[random.Random, list[Tensor]], Any]] = []


def maker(weight: int) -> Callable[[Any], Any]:
    def enter(function: Any) -> Any:
        MAKERS.extend([function] * weight)
        return function

    return enter


def _pick(rng: random.Random, values: list[Tensor], exact: bool = True) -> int:
    """A value's number; the latest are likelier. Values that were rounded start no new chain when ``exact``."""
    return max(rng.randrange(len(values)) for _ in range(2))


def _on(text: str, function: Callable[..., Tensor], *numbers: int) -> tuple[str, Step]:
    return f"{text}({', '.join(f'v{n}' for n in numbers)})", lambda values: function(*(values[n] for n in numbers))


UNARY = (
    "neg", "abs", "sign", "relu", "square", "floor", "ceil", "trunc", "round", "bitwise_not", "logical_not", "isnan",
    "isinf", "frac", "positive", "sgn",
)  # fmt: skip
BINARY = (
    "add", "sub", "mul", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or",
    "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "fmax", "fmin", "true_divide", "floor_divide",
    "remainder", "fmod", "bitwise_left_shift", "bitwise_right_shift", "atan2", "heaviside", "copysign", "hypot",
)  # fmt: skip
ROUNDS = (
    "exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "sin", "cos", "erf", "expm1", "log1p", "reciprocal", "exp2",
    "log2", "atan", "asinh",
)  # fmt: skip
NUMBERS = (0, 1, 2, -1, 3, 0.5, -1.5, True, 2.0)


def _nonzero(name: str, x: Tensor, y: Tensor) -> Tensor:
    """Integer division by zero raises and shifts beyond the width differ by machine: kept out."""
    if "shift" in name:
        y = y.clamp(0, 3) if y.dtype is not torch.bool else y
    elif name in ("floor_divide", "remainder", "fmod"):
        y = torch.where(y == 0, torch.ones_like(y), y)
    return getattr(torch, name)(x, y)


@maker(4)
def _unary(rng: random.Random, values: list[Tensor]) -> Any:
    name = rng.choice(UNARY)
    return _on(name, getattr(torch, name), _pick(rng, values))


@maker(8)
def _binary(rng: random.Random, values: list[Tensor]) -> Any:
    name = rng.choice(BINARY)
    return _on(name, lambda x, y: _nonzero(name, x, y), _pick(rng, values), _pick(rng, values))


@maker(4)
def _with_number(rng: random.Random, values: list[Tensor]) -> Any:
    name = rng.choice([n for n in BINARY if n not in ("maximum", "minimum", "fmax", "fmin", "atan2", "hypot")])
    number = rng.choice(NUMBERS)
    if number == 0 and name in ("floor_divide", "remainder", "fmod"):
        return None
    if "shift" in name and (not isinstance(number, int) or number < 0):
        return None
    return _on(f"{name}.{number!r}", lambda x: getattr(torch, name)(x, number), _pick(rng, values))


@maker(2)
def _rounding(rng: random.Random, values: list[Tensor]) -> Any:
    name = rng.choice(ROUNDS)
    return _on(f"rounds.{name}", getattr(torch, name), _pick(rng, values))


@maker(2)
def _clamp(rng: random.Random, values: list[Tensor]) -> Any:
    low, high = rng.choice((None, -2, 0, 0.5)), rng.choice((1, 2, 1.5))
    return _on(f"clamp[{low}, {high}]", lambda x: x.clamp(low, high), _pick(rng, values))


@maker(2)
def _where(rng: random.Random, values: list[Tensor]) -> Any:
    return _on("where", lambda c, a, b: torch.where(c > 0, a, b), *(_pick(rng, values) for _ in range(3)))


@maker(3)
def _cast(rng: random.Random, values: list[Tensor]) -> Any:
    dtype = rng.choice((*FLOATS, *INTEGERS, torch.bool))
    return _on(f"to[{dtype}]", lambda x: x.to(dtype), _pick(rng, values))


REDUCTIONS = (
    "sum", "amax", "amin", "any", "all", "prod", "count_nonzero",
)  # fmt: skip


@maker(4)
def _reduce(rng: random.Random, values: list[Tensor]) -> Any:
    name, number, keep = rng.choice(REDUCTIONS), _pick(rng, values), rng.random() < 0.5
    rank = values[number].dim()
    dims = tuple(rng.sample(range(rank), rng.randint(1, rank))) if rank else ()
    if name == "prod":
        return _on("prod", lambda x: x.clamp(-1, 1).prod(dims[0], keep) if rank else x, number)
    if name == "count_nonzero":
        return _on(f"count_nonzero[{dims}]", lambda x: torch.count_nonzero(x, dims), number)
    return _on(f"{name}[{dims}, {keep}]", lambda x: getattr(torch, name)(x, dims, keep), number)


@maker(2)
def _rounding_reduction(rng: random.Random, values: list[Tensor]) -> Any:
    number = _pick(rng, values)
    rank = values[number].dim()
    if not rank:
        return None
    dim, keep = rng.randrange(rank), rng.random() < 0.5
    name = rng.choice(("mean", "var", "softmax", "log_softmax", "logsumexp", "norm", "std", "cumsum"))
    calls: dict[str, Callable[[Tensor], Tensor]] = {
        "mean": lambda x: x.mean(dim, keep), "var": lambda x: x.var(dim, keepdim=keep),
        "softmax": lambda x: x.softmax(dim), "log_softmax": lambda x: x.log_softmax(dim),
        "logsumexp": lambda x: x.logsumexp(dim, keep), "norm": lambda x: x.norm(2, dim, keep),
        "std": lambda x: x.std(dim, keepdim=keep), "cumsum": lambda x: x.cumsum(dim),
    }  # fmt: skip
    return _on(f"rounds.{name}[{dim}, {keep}]", calls[name], number)


@maker(2)
def _extremum(rng: random.Random, values: list[Tensor]) -> Any:
    number = _pick(rng, values)
    rank = values[number].dim()
    if not rank or values[number].dtype is torch.bool:
        return None
    dim, keep, part = rng.randrange(rank), rng.random() < 0.5, rng.randrange(2)
    name = rng.choice(("max", "min"))
    if rng.random() < 0.3:
        return _on(f"arg{name}", lambda x: getattr(torch, f"arg{name}")(x, dim, keep), number)
    return _on(f"{name}[{dim}, {keep}][{part}]", lambda x: getattr(torch, name)(x, dim, keep)[part], number)


@maker(7)
def _view(rng: random.Random, values: list[Tensor]) -> Any:
    number = _pick(rng, values)
    x = values[number]
    rank = x.dim()
    kind = rng.choice(
        ("permute", "slice", "select", "unsqueeze", "flatten", "expand", "flip", "roll", "squeeze", "reshape", "unfold",
         "diagonal", "narrow", "movedim", "tile", "t")
    )  # fmt: skip
    if not rank and kind not in ("unsqueeze", "expand"):
        return None
    dim = rng.randrange(rank) if rank else 0
    size = x.shape[dim] if rank else 0
    other, order = (rng.randrange(rank) if rank else 0), rng.sample(range(rank), rank)
    start, step = rng.randint(0, 2), rng.choice((1, 1, 2, 3))
    calls: dict[str, Callable[[Tensor], Tensor]] = {
        "permute": lambda v: v.permute(order), "select": lambda v: v.select(dim, rng_index % max(size, 1)),
        "slice": lambda v: v[(slice(None),) * dim + (slice(start, None, step),)],
        "unsqueeze": lambda v: v.unsqueeze(dim), "flatten": lambda v: v.flatten(),
        "expand": lambda v: v.unsqueeze(0).expand(3, *v.shape), "flip": lambda v: v.flip(dim, other),
        "roll": lambda v: v.roll(start + 1, dim), "squeeze": lambda v: v.squeeze(),
        "reshape": lambda v: v.reshape(-1, *v.shape[dim + 1 :]) if v.numel() else v,
        "unfold": lambda v: v.unfold(dim, min(2, size), step), "diagonal": lambda v: v.diagonal(start - 1, dim, other),
        "narrow": lambda v: v.narrow(dim, min(start, size), max(size - start - 1, 0)),
        "movedim": lambda v: v.movedim(dim, other), "tile": lambda v: v.tile(2, 1),
        "t": lambda v: v.transpose(dim, other),
    }  # fmt: skip
    rng_index = rng.randrange(64)
    return _on(f"{kind}[{dim}, {other}, {order}, {start}, {step}, {rng_index}]", calls[kind], number)


@maker(3)
def _join(rng: random.Random, values: list[Tensor]) -> Any:
    number = _pick(rng, values)
    rank = values[number].dim()
    if not rank:
        return None
    dim = rng.randrange(rank)
    fitting = [
        k for k, v in enumerate(values)
        if v.dim() == rank and all(a == b for d, (a, b) in enumerate(zip(v.shape, values[number].shape)) if d != dim)
    ]  # fmt: skip
    parts = [number, *(rng.choice(fitting) for _ in range(rng.randint(0, 3)))]
    if rng.random() < 0.3:
        return _on(f"stack[{dim}]", lambda x: torch.stack([x, x + 1, x], dim), number)
    return _on(f"cat[{dim}]", lambda *tensors: torch.cat(tensors, dim), *parts)


@maker(3)
def _padded(rng: random.Random, values: list[Tensor]) -> Any:
    number = _pick(rng, values)
    x = values[number]
    mode = rng.choice(("constant", "constant", "reflect", "replicate", "circular"))
    pads = [rng.randint(-1 if mode == "constant" else 0, 2) for _ in range(2 * min(max(x.dim(), 1), 2))]
    if mode != "constant":
        pads = pads[:2] if x.dim() < 4 else pads
    return _on(f"pad[{pads}, {mode}]", lambda v: F.pad(v, pads, mode), number)


@maker(5)
def _indexed(rng: random.Random, values: list[Tensor]) -> Any:
    number = _pick(rng, values)
    x = values[number]
    if not x.dim():
        return None
    dim = rng.randrange(x.dim())
    size = x.shape[dim]
    if not size:
        return None
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    kind = rng.choice(("index_select", "gather", "getitem", "two", "take_along", "index_add", "scatter", "scatter_add",
                       "index_put", "index_copy", "masked_fill", "index_fill", "accumulate"))  # fmt: skip
    index = torch.randint(0, size, (rng.choice((1, 3, 5)),), generator=generator)
    places = torch.randint(0, size, x.shape, generator=generator)
    before = (slice(None),) * dim
    source = torch.randint(0, 3, [len(index) if d == dim else s for d, s in enumerate(x.shape)], generator=generator)
    calls: dict[str, Callable[[Tensor], Tensor]] = {
        "index_select": lambda v: v.index_select(dim, index), "gather": lambda v: v.gather(dim, places),
        "getitem": lambda v: v[(*before, index - size)], "two": lambda v: v[(*before, index[:, None] * 0)],
        "take_along": lambda v: torch.take_along_dim(v, places, dim),
        "index_add": lambda v: v.index_add(dim, index, source.to(v.dtype), alpha=2),
        "scatter": lambda v: v.scatter(dim, places, 2), "scatter_add": lambda v: v.scatter_add(dim, places, v * 2),
        "index_put": lambda v: v.index_put((index,), v.new_ones(())) if dim == 0 else v,
        "index_copy": lambda v: v.index_copy(dim, torch.arange(size), v + 1),
        "masked_fill": lambda v: v.masked_fill(places > 0, 2), "index_fill": lambda v: v.index_fill(dim, index, 1),
        "accumulate": lambda v: v.index_put((index,), v.new_ones(()), accumulate=True) if dim == 0 else v,
    }  # fmt: skip
    return _on(f"{kind}[{dim}, {index.tolist()}]", calls[kind], number)


@maker(2)
def _made(rng: random.Random, values: list[Tensor]) -> Any:
    number = _pick(rng, values)
    shape, dtype = values[number].shape, rng.choice((torch.float32, torch.int64, torch.bfloat16))
    kind = rng.choice(("ones", "arange", "eye", "tril", "full", "linspace"))
    last = shape[-1] if len(shape) else 1
    calls: dict[str, Callable[[Tensor], Tensor]] = {
        "ones": lambda v: torch.ones(shape, dtype=dtype) + v, "arange": lambda v: torch.arange(last) % 3 + v,
        "eye": lambda v: torch.eye(last, dtype=dtype) + v[..., :1], "tril": lambda v: v.tril(),
        "full": lambda v: torch.full(shape, 2, dtype=dtype).mul(v), "linspace": lambda v: torch.linspace(0, 4, 5),
    }  # fmt: skip
    return _on(f"{kind}[{tuple(shape)}, {dtype}]", calls[kind], number)


def main() -> int:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    first, last = map(int, sys.argv[1:3])
    backward = sys.argv[3:] == ["backward"]
    bad = 0
    for seed in range(first, last):
        found = difference(seed, backward)
        if found:
            bad += 1
            program = Program(seed)
            print(f"--- seed {seed}: {found[:700]}")
            print("\n".join(f"    v{k}: {x.dtype} {tuple(x.shape)} {x.stride()}" for k, x in enumerate(program.inputs)))
            print("\n".join(f"    {line}" for line in program.text[1:]), flush=True)
    print(f"{last - first} programs, {bad} differ")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
