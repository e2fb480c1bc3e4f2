"""The C translation unit of a graph: what it needs of prelude.h, then every different kernel once with its exported
adapter.

Two kernels that are equal but for the names of their buffers (the twelve equal layers of a model) share one function.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from .. import interrupts
from ..records.kernels import Choice, FusedKernel, Kernel, Trial
from ..records.loops import Buffer, Compute, Const, Load, Store
from .c_kernel import DEFAULT, CKernel
from .c_ops import CALLED, LIBM
from .effort import least_shared
from .nest import build
from .prelude import prelude_of

# Words of C, names the printer uses itself, and macros that system headers define in lower case.
RESERVED = frozenset(
    [
        "auto",
        "break",
        "case",
        "char",
        "const",
        "continue",
        "default",
        "do",
        "double",
        "else",
        "enum",
        "extern",
        "float",
        "for",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "register",
        "restrict",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "struct",
        "switch",
        "typedef",
        "union",
        "unsigned",
        "void",
        "volatile",
        "while",
        "asm",
        "typeof",
        "a",
        "block",
        "end",
        "row",
        "first",
        "lane",
        "stop",
        "from",
        "to",
        "top",
        "bottom",
        "team",
        "used",
        "thread",
        "total",
        "sum",
        "c",
        "t",
        "free",
        "aligned_alloc",
        "linux",
        "unix",
        "errno",
        "bf16",
        "f16",
        "bool8",
    ]
) | {name + suffix for name in (*LIBM, *CALLED, "fmod") for suffix in ("", "f")}


@dataclass(frozen=True)
class Call:
    """How the wrapper calls a kernel: its function's name and the buffers to pass, in order."""

    kernel: str
    buffers: tuple[str, ...]


@dataclass(frozen=True)
class Together:
    """Kernels that run in one call: the function, whose arguments are theirs in turn."""

    function: str
    kernels: tuple[str, ...]


def canonical(kernel: FusedKernel, buffers: dict[str, Buffer]) -> tuple[object, tuple[str, ...]]:
    """A key that equal kernels share, and the kernel's buffers in the order the key names them."""
    names: dict[str, int] = {}

    def number(buffer: str) -> tuple[int, str]:
        return names.setdefault(buffer, len(names)), buffers[buffer].dtype

    loops = []
    for loop in kernel.loops:
        body: list[object] = []
        for op in loop.body:
            if isinstance(op, Load):
                body.append(("load", op.result, number(op.access.buffer), op.access.strides, op.access.offset,
                             op.access.indirect, op.dtype, op.mask, repr(op.other)))  # fmt: skip
            elif isinstance(op, Store):
                onto = None if op.onto is None else number(op.onto)
                body.append(("store", number(op.access.buffer), op.access.strides, op.access.offset,
                             op.access.indirect, op.arg, onto, op.add))  # fmt: skip
            elif isinstance(op, Const):
                body.append(("const", op.result, repr(op.value), op.dtype))
            else:
                body.append(op)
        loops.append((loop.dims, loop.reduced, tuple(body)))
    local = tuple(sorted(names[b] for b in kernel.local))
    over = tuple((names[written], names[read]) for written, read in kernel.over)
    return (kernel.dims, kernel.inner, kernel.across, tuple(loops), local, over), tuple(names)


class Unit:
    """Collects the kernels of a graph; ``add`` returns how to call one, ``text`` the file."""

    def __init__(
        self,
        buffers: dict[str, Buffer],
        most_threads: int | None = None,
        tried: Mapping[str, tuple[Trial, ...]] = MappingProxyType({}),
    ) -> None:
        self.buffers, self.most_threads, self.tried = buffers, most_threads, tried
        self.fused: dict[str, FusedKernel] = {}  # printed kernels as they were fused
        self.known: dict[object, tuple[str, tuple[int, ...]]] = {}
        self.kernels: list[Kernel] = []
        self.parts: list[str] = []
        self.called: dict[str, Call] = {}
        self.work: dict[str, tuple[float, bool]] = {}  # a kernel's effort, and whether it has threads of its own
        self.groups: dict[tuple[str, ...], str] = {}  # kernels in one call, and the name of its function

    def add(self, kernel: FusedKernel) -> Call:
        interrupts.check()
        key, order = canonical(kernel, self.buffers)
        found = self.known.get(key)
        if found is None:
            found = self._print(kernel, order)
            self.known[key] = found
        else:
            self._count(found[0], kernel)
        name, positions = found
        call = self.called[kernel.name] = Call(name, tuple(order[k] for k in positions))
        return call

    def _print(self, kernel: FusedKernel, order: tuple[str, ...]) -> tuple[str, tuple[int, ...]]:
        name = f"kernel_{len(self.kernels)}"
        self.fused[name] = kernel
        tried = self.tried.get(name, ())
        printer = self.printer(kernel, tried[0].choice if tried else DEFAULT)
        text = "\n".join((*_comment(kernel, tried), printer.text(name), printer.adapter(name)))
        self.parts.append(text)
        self.work[name] = printer.effort, printer.parallel
        self.kernels.append(
            Kernel(
                name,
                "c",
                text,
                printer.arguments,
                tuple(lp.name for lp in kernel.loops),
                kernel.ops,
                kernel.origins,
                tried=tried,
            )
        )
        return name, tuple(order.index(b) for b in printer.arguments)

    def together(self, kernels: Sequence[FusedKernel]) -> list[Together]:
        """How to call the kernels that run in one call with others: the first of each run, and those beside it."""
        runs: list[list[str]] = []
        for kernel in kernels:
            if kernel.beside:
                runs[-1].append(kernel.name)
            else:
                runs.append([kernel.name])
        return [Together(self._named(run), tuple(run)) for run in runs if len(run) > 1]

    def _named(self, run: list[str]) -> str:
        names = tuple(self.called[name].kernel for name in run)
        return self.groups.setdefault(names, f"kernel_group_{len(self.groups)}")

    def _group(self, names: tuple[str, ...]) -> str:
        """The function of several kernels, whose arguments are theirs in turn; one parallel region if all are small."""
        counts = {kernel.name: len(kernel.arguments) for kernel in self.kernels}
        first, total = [], 0
        for name in names:
            first.append(total)
            total += counts[name]
        if len(set(names)) == 1:
            tables, call = [], f"{names[0]}_call(a + {counts[names[0]]} * k)"
        else:
            listed = ", ".join(f"{name}_call" for name in names)
            tables = [
                f"    static void (*const kernels[])(void**) = {{{listed}}};",
                f"    static const int64_t first[] = {{{', '.join(map(str, first))}}};",
            ]
            call = "kernels[k](a + first[k])"
        work = [self.work[name] for name in names]
        shared = self.most_threads != 1 and sum(effort for effort, _ in work) > least_shared()
        team = f" num_threads({self.most_threads})" if self.most_threads else ""
        threads = shared and not any(parallel for _, parallel in work)
        lines = [f"/* {len(names)} kernels in one call */", f"void {self.groups[names]}_call(void** a)", "{", *tables]
        lines += [f"    #pragma omp parallel for schedule(static){team}"] if threads else []
        return "\n".join((*lines, f"    for (int64_t k = 0; k < {len(names)}; ++k) {call};", "}"))

    def printer(self, kernel: FusedKernel, choice: Choice) -> CKernel:
        """What prints a kernel in the chosen way."""
        return CKernel(build(kernel), self.buffers, identifier, choice, self.most_threads)

    def _count(self, name: str, again: FusedKernel) -> None:
        """One more call of a printed kernel: it stands for the loops of that one too."""
        n, one = next((k, kernel) for k, kernel in enumerate(self.kernels) if kernel.name == name)
        self.kernels[n] = one.called_for(again)

    def text(self, title: str) -> str:
        head = (
            f"/* {title}: {len(self.parts)} kernels. Generated by torchglass; edit and run again to see the effect. */"
        )
        kernels = "\n\n".join((*self.parts, *map(self._group, self.groups)))
        return "\n\n".join((head, prelude_of(kernels), kernels)) + "\n"


def has_bounds(kernel: FusedKernel) -> bool:
    """Whether the kernel reads at places that tensors say, which may be out of range."""
    return any(isinstance(op, Compute) and op.op == "bound" for loop in kernel.loops for op in loop.body)


def identifier(name: str) -> str:
    """A C name for a buffer: free of C's words and of the printer's own t1, r1, i0, acc1, step8, tile0, got0, kept0."""
    plain = re.sub(r"(?a)\W", "_", name)
    ours = re.fullmatch(r"(t|r|i|acc|step|tile|got|kept)\d+\w*|(tg|omp|b|u?int\d+)_\w*|\d\w*", plain)
    macro = plain.upper() == plain and plain.strip("_") != ""
    return f"b_{plain}" if plain in RESERVED or ours or macro else plain


def _comment(kernel: FusedKernel, tried: tuple[Trial, ...] = ()) -> list[str]:
    """What a kernel fuses, for the reader."""
    ops = ", ".join(dict.fromkeys(op.removeprefix("aten.") for op in kernel.ops))
    lines = [f"/* {ops}", f" * rows {[str(d) for d, i in zip(kernel.dims, kernel.inner) if not i]}".replace("'", "")
             + f", of {[str(d) for d, i in zip(kernel.dims, kernel.inner) if i]}".replace("'", "")]  # fmt: skip
    lines += [f" * {origin}" for origin in kernel.origins[:12]]
    lines += [f" * {'runs' if n == 0 else 'tried'}: {trial}" for n, trial in enumerate(tried)]
    return [*lines, " */"]
