"""A file of Triton kernels in, what wrappers call out: machine code for this machine's GPU, or the file's functions.

Its table ``CONFIGURATIONS`` says what a kernel is compiled with, so that the file says all, an edited one too::

    CONFIGURATIONS = {
        "kernel_0": {"signature": "*fp32:16 *fp32:16", "grid": ["XBLOCK"], "XBLOCK": 8, "RBLOCK": 128, "num_warps": 4},
    }

``signature``: the types of the arguments, those with ``:16`` at addresses divisible by 16; ``grid``: the constants that
say for how many points a program is, for each axis of the grid. A wrapper says how many points there are::

    kernel_0(x, softmax, points=512)

Machine code is kept beside the file, under a name with the hash of all that it was made of. A kernel that takes more
shared memory than the GPU has is compiled again for less of it (``smaller``), and that is not kept.

With ``TRITON_INTERPRET=1`` in the environment Triton's interpreter runs the functions, and pdb stops in them.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from . import files, library, triton_compiler
from .toolchain import ToolchainError
from .triton_compiler import Compiled
from .triton_worker import SETTINGS

try:
    from .._native import CudaKernel
except (ImportError, AttributeError):
    CudaKernel = None  # type: ignore[assignment, misc]

TABLE = "CONFIGURATIONS"
MOST_SHARED = 232_448  # bytes of shared memory of a program, where PyTorch does not say it: an H100's
Configuration = Mapping[str, Any]


def by_interpreter() -> bool:
    """Whether Triton's interpreter was asked for."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def interprets() -> bool:
    """Whether the functions themselves run: by Triton's interpreter, or, without our native core, its compiler."""
    return CudaKernel is None or by_interpreter()


class Interpreted:
    """A kernel called as its machine code is, that runs as Triton has it run."""

    def __init__(self, module: ModuleType, name: str) -> None:
        self.__name__ = name
        self._function, self._configuration = getattr(module, name), getattr(module, TABLE)[name]

    def __call__(self, *args: Any, points: int | tuple[int, ...] = ()) -> None:
        configuration = self._configuration
        counts = points if isinstance(points, tuple) else (points,)
        blocks = [configuration[axis] for axis in configuration["grid"]]
        grid = tuple((count + block - 1) // block for count, block in zip(counts, blocks, strict=True)) or (1,)
        if 0 not in grid:
            constants = {n: v for n, v in configuration.items() if n not in ("signature", "grid")}
            self._function[grid](*args, **constants)


def interpreted(module: ModuleType) -> dict[str, Callable[..., None]]:
    """What starts the functions of a kernels file that was run as it is."""
    from . import triton_interpreter  # with all that evaluates loops

    libdevice = getattr(module, "libdevice", None)
    if by_interpreter():
        if isinstance(libdevice, ModuleType):
            triton_interpreter.supply(libdevice)
        triton_interpreter.supply_helpers(module)
    return {name: Interpreted(module, name) for name in getattr(module, TABLE)}


class Compiling:
    """A kernels file whose kernels are compiled beside this process."""

    def __init__(self, path: Path, text: str, kept: bool, capability: int, most_shared: int = MOST_SHARED) -> None:
        """``kept``: machine code that lies beside the file is taken, and left there."""
        self.filename, self.text = path.name, text
        self._path, self._capability, self._most_shared = path, capability, most_shared
        self._configurations = configurations(path, text)
        self._key = _key(text, capability)
        self.file = path.with_name(f"{path.stem}.{self._key}.cubins") if kept else None
        self._known = _read(self.file, self._key)
        self._texts: dict[str, str] = {}  # of kernels that were too large as the file has them
        self._asked: triton_compiler.Asked | None = None
        if self._known is None and self._configurations:
            self._asked = triton_compiler.Asked(str(path), text, list(self._configurations), capability)

    def result(self) -> dict[str, CudaKernel]:
        """What starts each kernel. Raises ToolchainError."""
        if self._known is None:
            made = [] if self._asked is None else self._asked.result()
            known = dict(zip(self._configurations, made, strict=True))
            self._known = {name: self._fitted(name, one) for name, one in known.items()}
            if not self._texts:
                _keep(self.file, self._key, self._known)
        return {name: self._launcher(name, made) for name, made in self._known.items()}

    def stop(self) -> None:
        """Nobody needs it any more; what is being compiled ends by itself."""

    def _fitted(self, name: str, made: Compiled) -> Compiled:
        """A kernel that the GPU has shared memory for. The driver says it of one that cannot be made so small."""
        for text, configuration in smaller(self.text, name, self._configurations[name]):
            if made[2] <= self._most_shared:
                break
            self._texts[name], self._configurations[name] = text, configuration
            (made,) = triton_compiler.compiled(str(self._path), text, [name], self._capability)
        return made

    def _launcher(self, name: str, made: Compiled, aligned: bool = True) -> CudaKernel:
        cubin, function, shared = made
        configuration = self._configurations[name]
        unaligned = functools.partial(self._unaligned, name) if aligned else None
        signature = configuration["signature"] if aligned else _without_alignment(configuration["signature"])
        blocks = tuple(configuration[axis] for axis in configuration["grid"])
        return CudaKernel(
            cubin, function, name, signature, blocks, configuration["num_warps"], shared, unaligned=unaligned
        )

    def _unaligned(self, name: str) -> CudaKernel:
        """The same for addresses that are not divisible by 16: compiled when there is such a one."""
        text = self._texts.get(name, self.text)
        (made,) = triton_compiler.compiled(str(self._path), text, [name], self._capability, aligned=False)
        return self._launcher(name, made, aligned=False)


def warm_up() -> None:
    """Have what compiles for this process's GPU, if it uses one, prepare itself."""
    if torch.cuda.is_initialized() and not interprets():
        triton_compiler.warm_up(capability())


def capability() -> int:
    """Of the GPU that is current: 90 for 9.0."""
    major, minor = torch.cuda.get_device_capability()
    return 10 * major + minor


def compiling(path: Path, text: str, kept: bool) -> Compiling:
    """The file's kernels for the GPU that is current."""
    return Compiling(path, text, kept, capability(), most_shared())


def most_shared() -> int:
    """Bytes of shared memory that a program of the GPU that is current may take."""
    return getattr(torch.cuda.get_device_properties(), "shared_memory_per_block_optin", MOST_SHARED)


STAGES = re.compile(r"\bnum_stages=\d+")


def smaller(text: str, name: str, configuration: Configuration) -> Iterator[tuple[str, Configuration]]:
    """Texts of a kernels file in which a kernel takes ever less shared memory, and its row of the table there.

    First nothing is loaded ahead of its turn, then blocks have half as many points, then programs half as many warps.
    What runs along whole rows stays as long as they are.
    """
    now: dict[str, Any] = dict(configuration)
    if STAGES.search(text):
        text = STAGES.sub("num_stages=1", text)
        yield text, now

    def halved(constant: str) -> tuple[str, Configuration]:
        nonlocal now
        now = {**now, constant: now[constant] // 2}
        table = {name: now}
        return f"{text}\n\n{TABLE} |= {table!r}\n", now

    for axis in ("XBLOCK", "YBLOCK"):
        least = 4 if f"{axis} // 4" in text else 1  # of random numbers, which are drawn in fours
        while now.get(axis, 0) > least:
            yield halved(axis)
    while now["num_warps"] > 1:
        yield halved("num_warps")


def configurations(path: Path, text: str) -> dict[str, Configuration]:
    """The table of a kernels file, which a person may have edited; ToolchainError says what is wrong with it."""
    try:
        assigned = [node for node in ast.parse(text).body if isinstance(node, ast.Assign)]
        (table,) = (n.value for n in assigned if isinstance(n.targets[0], ast.Name) and n.targets[0].id == TABLE)
        found: dict[str, Configuration] = ast.literal_eval(table)
        for one in found.values():
            if missing := {"signature", "grid", "num_warps", *one["grid"]} - one.keys():
                raise ValueError(f"a kernel without {', '.join(sorted(missing))}")
        return found
    except (SyntaxError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ToolchainError(f"{path} has no table {TABLE} to compile by: {error}") from error


def _without_alignment(signature: str) -> str:
    return " ".join(kind.partition(":")[0] for kind in signature.split())


# -- machine code that is kept ---------------------------------------------------------------------------------------
def _key(text: str, capability: int) -> str:
    named = f"{text}\nsm_{capability}\ntriton {version()}\n{SETTINGS}"
    return hashlib.sha256(named.encode("utf-8", "surrogateescape")).hexdigest()[:16]


@functools.cache
def version() -> str:
    """Triton's."""
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _keep(file: Path | None, key: str, made: Mapping[str, Compiled]) -> None:
    if file is None:
        return
    rows = [[name, function, shared, len(cubin)] for name, (cubin, function, shared) in made.items()]
    content = b"\n".join((json.dumps(rows).encode(), b"".join(cubin for cubin, _, _ in made.values())))
    with contextlib.suppress(OSError):  # a full disk: they are compiled again by the next process
        files.write_atomically(file, library.sealed(content, key))


def _read(file: Path | None, key: str) -> dict[str, Compiled] | None:
    """What lies there; None where that is nothing, or damaged."""
    if file is None:
        return None
    with contextlib.suppress(OSError):
        found = files.read(file)
        content = None if found is None else library.content_of(found, key)
        if content is not None:
            head, _, code = content.partition(b"\n")
            return dict(_taken_apart(json.loads(head), code))
    return None


def _taken_apart(rows: Sequence[Any], code: bytes) -> list[tuple[str, Compiled]]:
    made, begin = [], 0
    for name, function, shared, length in rows:
        made.append((name, (code[begin : begin + length], function, shared)))
        begin += length
    return made
