"""Types of the native core (csrc/). The C++ files' head comments say what each does."""

from collections.abc import Callable, Sequence
from types import CodeType, FunctionType
from typing import Any, TypeVar

import torch

_Method = TypeVar("_Method", bound=Callable[..., Any])

class Kernel:
    __name__: str
    owner: object
    def __init__(self, address: int, name: str, owner: object = None) -> None: ...
    def __call__(self, *args: torch.Tensor | int) -> None: ...

class CudaKernel:
    __name__: str
    registers: int | None
    spilled: int | None
    def __init__(
        self,
        cubin: bytes,
        function: str,
        name: str,
        signature: str,
        blocks: tuple[int, ...],
        warps: int,
        shared: int,
        unaligned: Callable[[], CudaKernel] | None = None,
    ) -> None: ...
    def __call__(self, *args: torch.Tensor | int, points: int | tuple[int, ...] = ()) -> None: ...

class GraphReplay:
    calls: int
    moved_bytes: int
    bytes: int
    def __init__(
        self,
        graph: torch.cuda.CUDAGraph,
        executable: int,
        inputs: list[torch.Tensor | None],
        buffers: tuple[torch.Tensor | None, ...],
        results: tuple[Any, ...],
        returned: int,
        geometry: bool,
        draws: Any,
    ) -> None: ...
    def __call__(self, inputs: list[Any]) -> tuple[Any, ...] | int: ...
    def elsewhere(self, inputs: list[Any]) -> list[int]: ...

def begin_draws() -> None: ...
def end_draws() -> Any: ...
def reserve_philox(
    where: torch.Tensor | torch.device, numel: int, shift: int, threads: int
) -> tuple[int, int, int]: ...

attention_runs: bool

def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    is_causal: bool,
    scale: float,
    *,
    out: tuple[torch.Tensor, torch.Tensor | None],
) -> None: ...
def has_layout(
    tensor: torch.Tensor | None, sizes: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype
) -> bool: ...
def empty_strided(
    sizes: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype, device: torch.device = ...
) -> torch.Tensor: ...
def release_memory() -> int: ...
def reinterpret(
    tensor: torch.Tensor, sizes: tuple[int, ...], strides: tuple[int, ...], storage_offset: int
) -> torch.Tensor: ...
def number_tensor(value: float, dtype: torch.dtype) -> torch.Tensor: ...
def tensor_flags(tensor: torch.Tensor) -> tuple[str, ...]: ...
def global_state() -> tuple[Any, ...]: ...
def same_constant(value: object, expected: object) -> bool: ...
def below_autograd(graph: Callable[[Any], Any], tensors: list[Any]) -> tuple[Any, ...]: ...
def overlap(inputs: tuple[torch.Tensor, ...], written: tuple[int, ...]) -> bool: ...
def write_back(
    inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor], writes: tuple[tuple[int, int, int], ...]
) -> None: ...

class ThreadState:
    def restore(self) -> None: ...

class GraphFunction:
    def __init__(
        self,
        forward: Callable[[list[Any]], Any],
        backward: Callable[[list[Any], list[Any]], Any] | None,
        inputs: int,
        saved: tuple[int, ...],
        kept: int,
        gradients: tuple[int, ...],
        differentiable: tuple[int, ...],
        returned: int,
        fallback: Callable[..., tuple[Any, ...]] | None = None,
        kills: tuple[tuple[int, ...], ...] | None = None,
        uses: tuple[tuple[int, ...], ...] | None = None,
        chain: tuple[Any, str, Callable[[Any, list[Any]], tuple[Any, ...] | None]] | None = None,
    ) -> None: ...
    def __call__(self, *inputs: Any) -> tuple[Any, ...]: ...

class GuardTable:
    remember: bool
    remembers: bool
    evaluations: int
    def __init__(
        self,
        nodes: tuple[tuple[str, int, Any], ...],
        conditions: tuple[tuple[int, str, Any], ...],
        relations: tuple[tuple[str, tuple[int, ...]], ...],
        state: tuple[Any, ...] | None,
        fetch: tuple[int, ...],
    ) -> None: ...
    def check(self, locals: tuple[Any, ...]) -> tuple[Any, ...] | None: ...
    def forget(self) -> None: ...

def set_many_dicts(count: int) -> int: ...
def process_changes() -> tuple[tuple[str, str, str, bool], ...]: ...
def undo_process_changes() -> None: ...

class Region:
    def __init__(
        self,
        compile: Callable[
            [FunctionType, tuple[Any, ...], CompiledFunction | None], tuple[Callable[..., Any], tuple[Any, ...]] | None
        ],
    ) -> None: ...
    def __enter__(self) -> Region: ...
    def __exit__(self, *exception: object) -> None: ...
    def add(self, function: FunctionType, compiled: CompiledFunction) -> None: ...
    def skip(self, code: CodeType) -> None: ...
    def clear(self) -> None: ...

def watching() -> bool: ...
def forget_other_threads() -> None: ...
def set_detour(detour: int) -> None: ...
def meet_exception() -> None: ...
def answering(method: _Method, queries: frozenset[Any]) -> _Method: ...

class ModuleCall:
    def __init__(
        self,
        cls: type,
        standard: dict[str, Callable[..., Any]],
        own_hooks: tuple[str, ...],
        shared: dict[str, Any],
        shared_hooks: tuple[str, ...],
    ) -> None: ...
    def __call__(self, module: Any, *args: Any, **kwargs: Any) -> Any: ...

class SizeDispatch:
    taken: int
    def __init__(
        self,
        graph: Callable[..., Any],
        places: tuple[tuple[int, int], ...],
        after: int,
        notice: Callable[[SizeDispatch, tuple[int, ...]], bool],
    ) -> None: ...
    def __call__(self, *inputs: Any) -> Any: ...
    def add(self, sizes: tuple[int, ...], graph: Callable[..., Any]) -> None: ...
    def end(self) -> None: ...

class CompiledFunction:
    function: FunctionType
    miss: Callable[[tuple[Any, ...]], Any]
    bound: tuple[Any, ...]
    function_state: Any
    entries: tuple[tuple[GuardTable, Callable[..., Any]], ...]
    hits: int
    misses: int
    disabled: bool
    continues: bool
    region: Region | None
    __name__: str
    __qualname__: str
    __wrapped__: Callable[..., Any]
    rebuild: Callable[[tuple[Any, ...]], Any]
    def __init__(
        self, function: FunctionType, miss: Callable[[tuple[Any, ...]], Any], bound: tuple[Any, ...] = ()
    ) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: object, owner: type | None = None) -> Any: ...
    def add_entry(self, table: GuardTable, entry: Callable[..., Any]) -> None: ...
    def add_plain(self, table: GuardTable) -> None: ...
    def clear(self) -> None: ...
