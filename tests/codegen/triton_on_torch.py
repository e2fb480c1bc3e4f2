"""A stand-in for Triton that runs printed kernels on CPU tensors, program by program.

It holds what Triton demands: pointers, masks and values have shapes that broadcast to the pointer's, integer division
truncates. Elements that a mask excludes are poisoned, so that a forgotten mask shows in the result.
"""

from __future__ import annotations

import builtins
import inspect
import itertools
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.codegen import philox

from torchglass.records import launch
from torchglass.records.kernels import KernelSources
from torchglass.runtime.load import load

TYPES = "float32 float64 bfloat16 float16 int64 int32 int16 int8 uint8"
FUNCTIONS = """
exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc lgamma
rsqrt sqrt floor ceil trunc pow atan2 fmod copysign hypot nextafter
"""


class Block(torch.Tensor):
    """A block of values; integers divide as in C."""

    def __floordiv__(self, other: Any) -> Any:
        return torch.div(self, other, rounding_mode="trunc")

    def __mod__(self, other: Any) -> Any:
        return torch.fmod(self, other)


def block(value: torch.Tensor) -> Block:
    return value.as_subclass(Block)


class Pointer:
    """An address for every point: ``pointer + offsets``."""

    def __init__(self, memory: torch.Tensor, offset: Any = 0) -> None:
        self.memory, self.offset = memory, offset

    def __add__(self, offset: Any) -> Pointer:
        return Pointer(self.memory, self.offset + offset)

    def at(self, mask: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Offsets, and which of them are real; every real one lies in the buffer."""
        offsets = torch.as_tensor(self.offset).long()
        real = torch.ones((), dtype=torch.bool) if mask is None else torch.as_tensor(mask)
        assert torch.broadcast_shapes(offsets.shape, real.shape) == offsets.shape, (offsets.shape, real.shape)
        real = real.broadcast_to(offsets.shape).as_subclass(torch.Tensor)
        offsets = offsets.as_subclass(torch.Tensor)
        inside = (offsets >= 0) & (offsets < self.memory.numel())
        assert bool(inside[real].all()), "an address outside its buffer"
        return offsets, real


class Language(types.SimpleNamespace):
    """``triton.language``."""

    program: tuple[int, ...] = (0,)
    constexpr = object()

    def program_id(self, axis: int) -> Block:
        return block(torch.tensor(self.program[axis], dtype=torch.int32))

    @staticmethod
    def arange(start: int, end: int) -> Block:
        assert (end - start) & (end - start - 1) == 0, "the length of a range is a power of two"
        return block(torch.arange(start, end, dtype=torch.int32))

    @staticmethod
    def load(pointer: Pointer, mask: Any = None, other: Any = None, eviction_policy: str = "") -> Block:
        offsets, real = pointer.at(mask)
        dtype = pointer.memory.dtype
        poison = float("nan") if dtype.is_floating_point else 1 if dtype == torch.bool else 101
        value = torch.full(offsets.shape, poison if other is None else other, dtype=dtype)
        value[real] = pointer.memory[offsets[real]]
        return block(value)

    @staticmethod
    def store(pointer: Pointer, value: Any, mask: Any = None) -> None:
        offsets, real = pointer.at(mask)
        value = torch.as_tensor(value).as_subclass(torch.Tensor)
        assert torch.broadcast_shapes(offsets.shape, value.shape) == offsets.shape, (offsets.shape, value.shape)
        value = value.to(pointer.memory.dtype).broadcast_to(offsets.shape)
        pointer.memory[offsets[real]] = value[real]

    @staticmethod
    def atomic_add(pointer: Pointer, value: Any, mask: Any = None) -> None:
        offsets, real = pointer.at(mask)
        value = torch.as_tensor(value).as_subclass(torch.Tensor)
        assert value.dtype == pointer.memory.dtype, (value.dtype, pointer.memory.dtype)
        pointer.memory.index_add_(0, offsets[real], value.broadcast_to(offsets.shape)[real])

    @staticmethod
    def full(shape: Sequence[int], value: Any, dtype: torch.dtype) -> Block:
        return block(torch.full(shape, value, dtype=dtype))

    @staticmethod
    def where(condition: Any, a: Any, b: Any) -> Any:
        if isinstance(condition, bool):  # of a kernel's numbers
            return a if condition else b
        assert condition.dtype == torch.bool
        return torch.where(condition, a, b)

    @staticmethod
    def fma(a: Any, b: Any, c: Any) -> Any:
        """In twice the digits, which is once rounded but for float64."""
        wide = [torch.as_tensor(x).double() for x in (a, b, c)]
        dtype = next(x.dtype for x in (a, b, c) if isinstance(x, torch.Tensor))
        return block((wide[0] * wide[1] + wide[2]).to(dtype))

    @staticmethod
    def cast(value: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor(value, dtype=dtype)

    @staticmethod
    def inline_asm_elementwise(
        asm: str, constraints: str, args: Sequence[Any], dtype: torch.dtype, is_pure: bool, pack: int
    ) -> Any:
        """Of ``tg_index`` and ``tg_keep``, the only ones there are."""
        if asm.startswith("mov"):
            (half,) = args
            assert half.dtype == dtype in (torch.bfloat16, torch.float16) and not is_pure and pack == 2
            return half
        index, size = args
        assert "trap" in asm and index.dtype == size.dtype == dtype and is_pure
        if not bool(((index >= 0) & (index < size)).all()):
            raise IndexError("index out of range in self")
        return index

    @staticmethod
    def range(start: int, end: int, step: int, num_stages: int) -> range:
        assert 1 < num_stages < 6
        return builtins.range(start, end, step)

    PropagateNan = types.SimpleNamespace(ALL="ALL")

    @staticmethod
    def maximum(a: Any, b: Any, propagate_nan: str | None = None) -> Any:
        return _extremum(torch.maximum, a, b, propagate_nan)

    @staticmethod
    def minimum(a: Any, b: Any, propagate_nan: str | None = None) -> Any:
        return _extremum(torch.minimum, a, b, propagate_nan)

    @staticmethod
    def broadcast_to(value: Any, shape: Sequence[int]) -> Any:
        return value.broadcast_to(shape)

    @staticmethod
    def sum(value: Any, axis: int, keep_dims: bool = False) -> Any:
        return value.sum(axis, keepdim=keep_dims, dtype=value.dtype)

    @staticmethod
    def reduce(value: Any, axis: int, combine: Callable[[Any, Any], Any], keep_dims: bool = False) -> Any:
        assert keep_dims and value.dtype != torch.bool
        while value.shape[axis] > 1:
            value = combine(*value.chunk(2, axis))
        return value

    @staticmethod
    def associative_scan(value: Any, axis: int, combine: Callable[[Any, Any], Any]) -> Any:
        assert value.dtype != torch.bool
        size, step = value.shape[axis], 1
        while step < size:
            joined = combine(value.narrow(axis, 0, size - step), value.narrow(axis, step, size - step))
            value, step = torch.cat([value.narrow(axis, 0, step), joined], axis), 2 * step
        return value

    @staticmethod
    def join(a: Any, b: Any) -> Any:
        return block(torch.stack([a, b], -1))

    @staticmethod
    def reshape(value: Any, shape: Sequence[int]) -> Any:
        return value.reshape(shape)

    @staticmethod
    def philox(seed: int, *counter: Any) -> tuple[Block, ...]:
        """Numbers of 32 bits, as int64: torch does not compute with uint32."""
        assert all(word.dtype == torch.int32 for word in counter if isinstance(word, torch.Tensor))
        words = [np.asarray(word).astype(np.uint32) for word in counter]
        drawn = philox.philox(words, (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF))
        return tuple(block(torch.from_numpy(np.atleast_1d(word).astype(np.int64))) for word in drawn)

    abs, div_rn, sqrt_rn = staticmethod(torch.abs), staticmethod(torch.true_divide), staticmethod(torch.sqrt)


def _extremum(function: Any, a: Any, b: Any, propagate_nan: str | None) -> Any:
    a, b = (block(torch.tensor(value)) if isinstance(value, int) else value for value in (a, b))
    assert propagate_nan == "ALL" or not a.is_floating_point()
    return function(a, b)


class Function:
    """``@triton.jit``: called by another kernel, or launched over a grid."""

    def __init__(self, fn: Callable[..., Any], language: Language) -> None:
        self.fn, self.language = fn, language

    def __call__(self, *args: Any) -> Any:
        return self.fn(*args)

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*args: Any, num_warps: int, maxnreg: int = 0, **constants: int) -> None:
            assert num_warps in (1, 2, 4, 8, 16, 32) and maxnreg % 8 == 0
            inspect.signature(self.fn).bind(*args, **constants)
            values = [Pointer(_memory(a)) if isinstance(a, torch.Tensor) else _scalar(a) for a in args]
            assert all(size <= 65_535 for size in grid[1:])
            for self.language.program in itertools.product(*map(range, grid)):
                self.fn(*values, **constants)

        return launch


def _scalar(value: Any) -> Any:
    """A number that a kernel is handed; of a size it computes as of a block of one element."""
    return block(torch.tensor(value)) if type(value) is int and 0 < value < 1 << 31 else value


def _memory(tensor: torch.Tensor) -> torch.Tensor:
    """All of a tensor's storage from its first element on."""
    items = tensor.untyped_storage().nbytes() // tensor.element_size() - tensor.storage_offset()
    return tensor.as_strided((items,), (1,))


def on_cpu(wrapper: str) -> str:
    """A wrapper's text for tensors on a CPU, also where none of them says where they are."""
    return wrapper.replace("device('cuda')", "device('cpu')")


def loaded(sources: KernelSources, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str = "forward") -> Any:
    """The wrapper of a graph's kernels, which lie in ``folder`` then; those of Triton run through the stand-in."""
    for language, text in sources.texts.items():
        (folder / launch.FILES[language].format(name)).write_text(text)
    (folder / f"{name}_wrapper.py").write_text(on_cpu(sources.wrapper_text))
    with monkeypatch.context() as patch:  # not while tracing: torch's own modules look for Triton too
        install(patch)
        return load(folder / f"{name}_wrapper.py", constants=sources.plan.handed)


def install(patch: pytest.MonkeyPatch) -> None:
    """Make ``import triton`` find the stand-in."""
    patch.setenv("TRITON_INTERPRET", "1")  # not compiled
    language = Language(int1=torch.bool, **{name: getattr(torch, name) for name in TYPES.split()})
    functions = {name: getattr(torch, name) for name in FUNCTIONS.split()}
    functions |= {"rint": torch.round, "normcdf": torch.special.ndtr}
    extra = types.SimpleNamespace(libdevice=types.SimpleNamespace(**functions))
    package = types.ModuleType("triton")
    package.jit = lambda fn: Function(fn, language)  # type: ignore[attr-defined]
    package.language = language  # type: ignore[attr-defined]
    for name, module in (("triton", package), ("triton.language", language), ("triton.language.extra", extra)):
        patch.setitem(sys.modules, name, module)  # type: ignore[arg-type]
