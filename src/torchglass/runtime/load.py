"""Loading generated wrappers, and the few functions they call: ``empty``, ``reinterpret``, ``ensure_layout``,
``kernels``, ``attention``.

``load(wrapper)`` executes the wrapper's text under the name of its file (breakpoints in it are hit) and returns its
``call``.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..process import interrupts, threads
from ..records.index_errors import INDEX_ERRORS
from ..torch_compat import has_its_numbers
from . import parallel_compile, triton_kernels
from .compilers import Compilers
from .library import Library
from .store import Artifact, load_python
from .toolchain import compile_c


def flash_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, is_causal: bool,
    scale: float, *, out: tuple[torch.Tensor, torch.Tensor | None],
) -> None:  # fmt: skip
    """Attention of float32 by PyTorch's loops."""
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    for to, result in zip(out, flash(query, key, value, 0.0, is_causal, attn_mask=mask, scale=scale)):
        if to is not None:
            to.copy_(result)


try:
    from torchglass import _native

    attention = _native.attention
    empty = _native.empty_strided
    has_layout = _native.has_layout
    reinterpret = _native.reinterpret
except (ImportError, AttributeError):
    _native = None  # type: ignore[assignment]

    attention = flash_attention

    def empty(
        sizes: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype, device: Any = "cpu"
    ) -> torch.Tensor:
        """Uninitialized memory."""
        return torch.empty_strided(sizes, strides, dtype=dtype, device=device)

    def has_layout(
        tensor: torch.Tensor | None, sizes: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype
    ) -> bool:
        """Whether it is a tensor of these sizes, strides and dtype, whose numbers are in memory as they are."""
        same = tensor is not None and (tensor.size(), tensor.stride(), tensor.dtype) == (sizes, strides, dtype)
        return same and has_its_numbers(tensor)

    def reinterpret(
        tensor: torch.Tensor, sizes: tuple[int, ...], strides: tuple[int, ...], storage_offset: int
    ) -> torch.Tensor:
        """The tensor's storage under other sizes and strides."""
        return torch.as_strided(tensor, sizes, strides, storage_offset)


def open_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, is_causal: bool,
    scale: float, queries: int, keys: int, *, out: tuple[torch.Tensor, torch.Tensor | None],
) -> None:  # fmt: skip
    """Attention of float32 by our loops (csrc/attention.cpp) where there are at least ``queries`` queries and at most
    ``keys`` keys.
    """
    ours = query.shape[2] >= queries and key.shape[2] <= keys
    (attention if ours else flash_attention)(query, key, value, mask, is_causal, scale, out=out)


class CtypesKernel:
    """A kernel called through ctypes: the same calling convention as ``_native.Kernel``, only slower."""

    def __init__(self, address: int, name: str, owner: Any = None) -> None:
        self.__name__, self.owner = name, owner
        self._function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)

    def __call__(self, *args: torch.Tensor | int) -> None:
        values = [a.data_ptr() if isinstance(a, torch.Tensor) else a for a in args]
        array = (ctypes.c_void_p * len(values))(*values)
        self._function(ctypes.addressof(array))


def make_kernel(library: Library, name: str) -> Callable[..., None]:
    """The launcher of one exported kernel of a loaded library."""
    kind = CtypesKernel if _native is None else _native.Kernel
    return kind(library.address(f"{name}_call"), name, library)


def kernels(source: Path, names: Sequence[str], failures: bool = False) -> list[Any]:
    """Compile a kernels file (unless it is compiled already), and return what calls the named kernels.

    ``failures``: last in the list, the four numbers in which kernels leave an index out of range. To a wrapper that
    ``load`` runs the file is the text that was generated with it, whatever it has become since.
    """
    made = _at_hand().get(source)
    library = _of_file(source) if made is None else made()
    if isinstance(library, dict):
        return [library[name] for name in names]
    launchers: list[Any] = [make_kernel(library, name) for name in names]
    return [*launchers, library.integers("tg_failed", 4)] if failures else launchers


def index_error(failed: Any) -> Exception:
    """The exception for an index out of range that a kernel met; the next call starts anew."""
    kind, message = INDEX_ERRORS[failed[0] - 1]
    failed[0], index, size = 0, failed[1], failed[2]
    index = index - size if index < 0 and kind is IndexError and "dimension" in message else index  # was made positive
    return kind(message.format(index=index, size=size, dim=failed[3]))


def ensure_layout(
    tensor: torch.Tensor | None, sizes: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    """The tensor itself when it is what the graph was compiled for, else a copy that is.

    Shapes, strides and dtypes were asked of operators' meta functions, and not all of those tell the truth. A result
    that the operator does not make is empty to them, and None here.
    """
    if has_layout(tensor, sizes, strides, dtype):
        return tensor
    if tensor is None:
        if 0 not in sizes:
            raise RuntimeError(f"an ATen call returned nothing, compiled for {sizes}")
        return torch.empty_strided(sizes, strides, dtype=dtype)
    if tensor.dtype != dtype:
        tensor = tensor.to(dtype)
    if tensor.size() != sizes:
        raise RuntimeError(f"an ATen call returned shape {tuple(tensor.size())}, compiled for {sizes}")
    same = all(a == b or d < 2 for a, b, d in zip(tensor.stride(), strides, sizes)) or 0 in sizes
    if same and has_its_numbers(tensor):
        return tensor
    copy = torch.empty_strided(sizes, strides, dtype=dtype, device=tensor.device)
    return copy.copy_(tensor)


class Building:
    """A file of C kernels that is compiled, as it was generated, by several compilers beside this thread."""

    def __init__(self, kernels: Artifact | Path) -> None:
        self._compilers = Compilers()
        path, text, kept = (kernels, None, True) if isinstance(kernels, Path) else (
            kernels.path, kernels.text, kernels.kept
        )  # fmt: skip
        self.filename = path.name
        self._made = threads.begin(self._make, path, parallel_compile.most(), text, kept, self._compilers)

    def _make(self, *job: Any) -> Library:
        _at_work.add(self)
        try:
            return compile_c(*job)
        finally:
            _at_work.discard(self)

    def result(self) -> Library:
        """The shared library. Raises ToolchainError."""
        return interrupts.waiting(self._made.result)

    @property
    def file(self) -> Path | None:
        """Where the library lies, once there is a result."""
        return self.result().file

    def stop(self) -> None:
        """Nobody needs it any more."""
        self._compilers.stop()

    def end(self) -> None:
        """Wait, but not for ever, until it has stopped: nothing of it is left then."""
        self.stop()
        with contextlib.suppress(Exception):
            self._made.exception(timeout=5)


_at_work: set[Building] = set()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_at_work.clear)  # they are the parent's


@atexit.register
def _end_all() -> None:
    """Of daemon threads, with which the interpreter ends."""
    for building in list(_at_work):
        building.end()


def load(
    wrapper: Artifact | Path,
    building: Iterable[Building | triton_kernels.Compiling] = (),
    options: Any = None,
    constants: Mapping[str, Any] | None = None,
    kernels: Sequence[Artifact] = (),
) -> Callable[..., tuple[Any, ...]]:
    """The ``call`` of a wrapper file: a list of tensors in, a tuple of results out.

    The wrapper names its kernels files itself (they lie beside it) and gets what ``building`` makes of some, or else
    what is made now of ``kernels``, of which a person's edit that fails is left out. ``constants`` are its sub-graphs
    and the large tensors whose numbers the wrapper does not hold. Raises ToolchainError where compilers fail.
    """
    try:
        made = {one.filename: _of_artifact(one) for one in kernels if one.edited}
        made |= {one.filename: one.result() for one in building}
        with _with_kernels(wrapper, kernels, made):
            module = load_python(wrapper, after=constants)
    except Exception as error:
        if not any(one.edited for one in kernels):
            raise
        generated = [one.as_generated(error) if one.edited else one for one in kernels]
        return load(wrapper, (), options, constants, generated)
    call: Callable[..., tuple[Any, ...]] = module.call
    return call


_local = threading.local()


def _at_hand() -> dict[Path, Callable[[], Any]]:
    """The kernels files of the wrapper that this thread loads, and what makes something of their texts."""
    return getattr(_local, "kernels", {})


@contextlib.contextmanager
def _with_kernels(wrapper: Artifact | Path, kernels: Sequence[Artifact], made: Mapping[str, Any]) -> Iterator[None]:
    before = _at_hand()
    folder = (wrapper if isinstance(wrapper, Path) else wrapper.path).parent
    if kernels:
        _local.kernels = {
            folder / one.filename: functools.partial(_known_or_made, made.get(one.filename), one) for one in kernels
        }
    try:
        yield
    finally:
        _local.kernels = before


def _known_or_made(known: Any, kernels: Artifact) -> Any:
    return _of_artifact(kernels) if known is None else known


def _of_artifact(kernels: Artifact) -> Any:
    """A library of C kernels; of Triton ones what starts them, by their names."""
    if not kernels.filename.endswith(".py"):
        return compile_c(kernels.path, 1, kernels.text, kernels.kept)
    if triton_kernels.interprets():
        return triton_kernels.interpreted(load_python(kernels))
    return triton_kernels.compiling(*kernels.content).result()


def _of_file(kernels: Path) -> Any:
    """The same of a file that lies there."""
    if kernels.suffix != ".py":
        return compile_c(kernels)
    if triton_kernels.interprets():
        return triton_kernels.interpreted(load_python(kernels))
    return triton_kernels.compiling(kernels, kernels.read_text(encoding="utf-8"), kept=True).result()


class graph_file:
    """The function of a sub-graph: a wrapper file beside the one that calls it, loaded when it is first called."""

    def __init__(self, path: Path, call: Callable[..., tuple[Any, ...]] | None = None) -> None:
        self.path, self.call = path, call

    def __call__(self, *inputs: torch.Tensor) -> tuple[Any, ...]:
        if self.call is None:
            self.call = load(self.path)
        return self.call(list(inputs))


def example_constant(sizes: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Zeros in place of a constant that is too large for a wrapper's text, for runs of the file alone."""
    return torch.zeros(sizes, dtype=dtype)


def demo(call: Callable[..., Any], specs: Sequence[Any]) -> None:
    """Run a wrapper on inputs of the right shapes; prints what comes out."""
    generator = torch.Generator().manual_seed(0)
    inputs = [example_input(spec, generator) for spec in specs]
    for k, result in enumerate(call(inputs)):
        shown = f"{result.dtype} {list(result.shape)}" if isinstance(result, torch.Tensor) else repr(result)
        print(f"result {k}: {shown}")


def example_input(spec: Any, generator: torch.Generator) -> Any:
    """A tensor of (sizes, strides, dtype), and a device if it is not the CPU: normal numbers, or zeros for integers
    (they may be indices).
    """
    if spec is None:
        return 1
    sizes, strides, dtype, *device = spec
    items = 1 + sum((d - 1) * s for d, s in zip(sizes, strides)) if 0 not in sizes else 0
    flat = torch.zeros(items, dtype=dtype)
    if dtype.is_floating_point:
        flat = torch.randn(items, generator=generator).to(dtype)
    return flat.to(*device or ("cpu",)).as_strided(sizes, strides)
