"""The C compiler: found once, called to turn a kernels file into a shared library, which is loaded and left beside it.

``compile_c(Path("forward_kernels.c"))`` leaves ``forward_kernels.<hash>.so``; the hash is of the text, the compiler and
its flags, so an edited file is compiled again and an unchanged one is not. One that is damaged is made anew. OpenMP is
the runtime that torch has loaded: a second one would fight it for the cores.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import sys
import weakref
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from . import cache_folder, files, library, parallel_compile
from .compilers import Compilers
from .library import Library

# -fno-tree-pre: partial redundancy elimination turns selections into branches, and loops stop being vectorized.
# -fno-thread-jumps: else selections that follow one another become one for each way through them.
# -fwrapv: integers that overflow wrap, as eager's do; without it GCC takes x + 1 > x for granted.
# -fno-builtin-sin, -cos: else the pair becomes one call of sincos, which has no vector form.
FLAGS = (
    "-O2", "-ftree-vectorize", "-march=native", "-mprefer-vector-width=512", "-fno-math-errno", "-fno-trapping-math",
    "-fwrapv", "-ffp-contract=off", "-fno-semantic-interposition", "-fopenmp", "-fPIC", "-std=gnu11",
    "-Werror=implicit-function-declaration",
    "-fno-tree-pre", "-fno-thread-jumps",
    "-fno-builtin-sin", "-fno-builtin-cos", "-fno-builtin-sinf", "-fno-builtin-cosf",
)  # fmt: skip


GDB = "TORCHGLASS_GDB"
"""Set to 1, kernels are compiled with ``-g``: gdb then stops in the generated C and shows it."""


def flags() -> tuple[str, ...]:
    """The flags of a compile now."""
    return (*FLAGS, "-g") if os.environ.get(GDB) == "1" else FLAGS


@contextlib.contextmanager
def debuggable(on: bool) -> Iterator[None]:
    """Compile kernels for gdb inside, if ``on``."""
    before = os.environ.get(GDB)
    if on:
        os.environ[GDB] = "1"
    try:
        yield
    finally:
        if on and before is None:
            del os.environ[GDB]
        elif on and before is not None:
            os.environ[GDB] = before


class ToolchainError(RuntimeError):
    """No C compiler, or one that failed."""


class NoCompiler(ToolchainError):
    """There is none."""


@cache
def compiler() -> tuple[str, ...]:
    """The C compiler's command: ``$CC``, else gcc, else clang. Raises NoCompiler naming what was looked for."""
    wanted = os.environ.get("CC")
    if wanted:
        try:
            words = shlex.split(wanted)
        except ValueError as error:
            raise NoCompiler(f"no C compiler: $CC is {wanted!r}, which is no command: {error}") from None
        if words and shutil.which(words[0]):
            return tuple(words)
        raise NoCompiler(f"no C compiler: $CC is {wanted!r}, which is not an executable")
    for name in ("gcc", "clang"):
        if shutil.which(name):
            return (name,)
    raise NoCompiler("no C compiler: looked for $CC (not set), gcc and clang on the PATH")


@cache
def openmp_library() -> str | None:
    """The OpenMP runtime that torch has loaded, to link against; None if there is none.

    Other packages (scikit-learn) bring one of their own, which another process may not have loaded.
    """
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None
    paths = dict.fromkeys(line.split(maxsplit=5)[-1] for line in lines)
    found = [path for path in paths if re.match(r"lib(gomp|omp|iomp5)\b", path.rpartition("/")[2])]
    home = os.path.dirname(getattr(sys.modules.get("torch"), "__file__", None) or "/no/torch")
    of_torch = [path for path in found if path.startswith(home)]  # torch/lib or torch.libs
    return next(iter(of_torch or found), None)


def _identity(compilers: Compilers) -> str:
    """What a library depends on beside its text."""
    return "\n".join((*compiler(), _version(compilers), *flags(), cpu_flags()))


_versions: dict[tuple[str, ...], str] = {}


def _version(compilers: Compilers) -> str:
    """The first line that the compiler says of itself."""
    words = compiler()
    known = _versions.get(words)
    if known is None:
        code, said = compilers.run([*words, "--version"])
        known = next(iter(said.splitlines()), "")
        if code == 0:  # not one that was stopped
            _versions[words] = known
    return known


@cache
def cpu_flags() -> str:
    """The instruction sets of the processor, as the system names them; of an ARM its model too."""
    try:
        lines = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
    except OSError:
        return ""
    of_arm = [line for line in lines if line.startswith(("Features", "CPU "))]
    return next((line for line in lines if line.startswith("flags")), f"flags: {' '.join(of_arm)}")


_libraries: weakref.WeakValueDictionary[str, Library] = weakref.WeakValueDictionary()


def compile_c(
    source: Path,
    most_parts: int = 1,
    text: str | None = None,
    kept: bool = True,
    compilers: Compilers | None = None,
) -> Library:
    """The library of a C file, compiled unless one of the same content is there, and loaded.

    ``text``: what to compile, where the caller has read the file; ``source`` then is its name. ``most_parts``: how many
    compilers may share the work, of which each compiles some of the file's kernels. Only for files as they are
    generated: what kernels share must be in the prelude. Without ``kept`` no file is read or left.
    ``compilers``: to stop them by.
    """
    if text is None:
        text = source.read_text(encoding="utf-8", errors="surrogateescape")
    compilers = compilers or Compilers()
    named = f"{text}{_identity(compilers)}{openmp_library()}"
    key = hashlib.sha256(named.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    debugged = "-g" in flags()
    found = _libraries.get(key)
    if found is not None and not debugged:
        return found
    file = source.with_name(f"{source.stem}.{key}.so")
    made = _kept(file, key, debugged) if kept else None
    if made is None:
        content = _build(source, text, parallel_compile.of(text, most_parts) if splits() else (), compilers)
        if kept and debugged:  # first: gdb waits for ever for the name of what was loaded from memory
            _keep(file, content, key)
        try:
            made = library.Library(content, file if debugged and file.exists() else None)
        except OSError as error:
            raise ToolchainError(f"what {compiler()[0]} made of {source} cannot be loaded: {error}") from error
        if kept and not debugged:
            _keep(file, content, key)
    made.file = file if kept else None
    if "tg_failed" not in text:  # in which graphs leave their failures
        _libraries[key] = made
    return made


def _keep(file: Path, content: bytes, key: str) -> None:
    with contextlib.suppress(OSError):  # a full disk: it is compiled again by the next process
        files.write_atomically(file, library.sealed(content, key))


def _kept(file: Path, key: str, debugged: bool) -> Library | None:
    """What lies there; None where that is nothing, damaged, or made for a system that can no longer load it. Debuggers
    want the file itself.
    """
    with contextlib.suppress(OSError):
        found = files.read(file)
        content = None if found is None else library.content_of(found, key)
        return None if content is None else library.Library(content, file if debugged else None)
    return None


def splits() -> bool:
    """Whether this compiler knows the flag that leaves kernels out; gdb is to see one file."""
    return os.path.basename(compiler()[0]).startswith("gcc") and "-g" not in flags()


def _build(source: Path, text: str, drivers: Sequence[str], compilers: Compilers) -> bytes:
    words = compiler()
    openmp = openmp_library()
    link = ["-nodefaultlibs"]
    link += [openmp, f"-Wl,-rpath,{os.path.dirname(openmp)}"] if openmp else ["-lgomp"]
    link += ["-lmvec", "-lm", "-lgcc"]  # the process has loaded the C library, whose symbols take half of a link
    # errors and debuggers name the file, and what a person's edit includes may lie beside it
    quoted = str(source).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    beside = ["-iquote", str(source.parent)] if os.path.isdir(source.parent) else []  # gcc refuses one below a file
    compiling = [*words, *flags(), *beside]
    try:
        with cache_folder.work_folder() as folder:
            compilers.temporary = folder
            copy, made = Path(folder) / "kernels.c", Path(folder) / "kernels.so"
            copy.write_bytes(f'#line 1 "{quoted}"\n{text}'.encode("utf-8", "surrogateescape"))
            inputs = parallel_compile.compiled(compiling, drivers, copy, Path(folder), compilers) or [str(copy)]
            command = [*compiling, "-shared", "-o", str(made), *inputs, *link]
            code, said = compilers.run(command)
            if code:
                shown = "\n".join(said.splitlines()[:30])
                raise ToolchainError(f"{words[0]} could not compile {source}:\n{shown}\ncommand: {shlex.join(command)}")
            return made.read_bytes()
    except OSError as error:
        raise ToolchainError(f"{words[0]} could not compile {source}: {error}") from error
