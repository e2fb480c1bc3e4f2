"""The C translation unit of a graph: what it needs of prelude.h, then every different kernel once with its exported
adapter.

Two kernels that are equal but for the names of their buffers (the twelve equal layers of a model) share one function;
so do many that differ in their numbers besides (``c_numbers``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from ..process import interrupts
from ..records.kernels import FusedKernel, Kernel, Measurement, TuningConfig
from ..records.loops import Buffer, Compute, Const, Load, Store
from .c_kernel import DEFAULT, CKernel, adapter
from .c_numbers import MOST_WRITTEN, Parameterized, parameterized, tables
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


@dataclass(frozen=True)
class Function:
    """A printed function: how much it computes, and whether it has threads of its own."""

    name: str
    effort: float
    parallel: bool


class Unit:
    """The kernels of a graph; ``add`` returns how to call them, ``text`` the file."""

    def __init__(
        self,
        buffers: dict[str, Buffer],
        most_threads: int | None = None,
        tried: Mapping[str, tuple[Measurement, ...]] = MappingProxyType({}),
    ) -> None:
        self.tables = tables(buffers)
        self.buffers = buffers | {table.name: table for table in self.tables.values()}
        self.most_threads, self.tried = most_threads, tried
        self.fused: dict[str, FusedKernel] = {}  # printed kernels as they were fused
        self.known: dict[object, tuple[str, tuple[int, ...]]] = {}
        self.kernels: list[Kernel] = []
        self.parts: list[str] = []
        self.called: dict[str, Call] = {}
        self.alike: dict[object, Parameterized] = {}
        self.functions: dict[tuple[object, TuningConfig], Function] = {}
        self.work: dict[str, Function] = {}  # that a kernel's calls run
        self.groups: dict[tuple[str, ...], str] = {}  # kernels in one call, and the name of its function

    def add(self, kernels: Sequence[FusedKernel]) -> dict[str, Call]:
        """How to call each kernel of the graph, by its name."""
        found = [(kernel, *canonical(kernel, self.buffers)) for kernel in kernels]
        different = {key: kernel for kernel, key, _ in found}
        self.alike = self._alike(different)
        for kernel, key, order in found:
            interrupts.check()
            known = self.known.get(key)
            if known is None:
                known = self.known[key] = self._print(kernel, key, order)
            else:
                self._count(known[0], kernel)
            name, positions = known
            self.called[kernel.name] = Call(name, tuple(order[k] for k in positions))
        return self.called

    def _alike(self, different: Mapping[object, FusedKernel]) -> dict[object, Parameterized]:
        """Those of many kernels that are equal but for their numbers, by key."""
        if len(different) <= MOST_WRITTEN:
            return {}
        made = {key: parameterized(kernel, self.tables) for key, kernel in different.items()}
        keys = {key: canonical(one.kernel, self.buffers)[0] for key, one in made.items() if one.tables}
        counts = Counter(keys.values())
        return {key: replace(made[key], key=same) for key, same in keys.items() if counts[same] > MOST_WRITTEN}

    def _print(self, kernel: FusedKernel, key: object, order: tuple[str, ...]) -> tuple[str, tuple[int, ...]]:
        name = f"kernel_{len(self.kernels)}"
        self.fused[name] = kernel
        tried = self.tried.get(name, ())
        choice = tried[0].choice if tried else DEFAULT
        one = self.alike.get(key, Parameterized(kernel, {}, key))
        taken = (*one.kernel.reads, *one.kernel.writes)
        lines = []
        function = self.functions.get((one.key, choice))
        if function is None:
            printer = self.printer(one.kernel, choice)
            function = self.functions[one.key, choice] = Function(name, printer.effort, printer.parallel)
            lines.append(printer.text(name))
        lines.append(adapter(name, function.name, taken, one.tables))
        as_another = function.name if function.name != name else None
        text = "\n".join((*_comment(kernel, tried, as_another), *lines))
        self.parts.append(text)
        self.work[name] = function
        arguments = tuple(b for b in taken if b not in one.tables)
        self.kernels.append(
            Kernel(
                name,
                "c",
                text,
                arguments,
                tuple(lp.name for lp in kernel.loops),
                kernel.ops,
                kernel.origins,
                tried=tried,
            )
        )
        return name, tuple(order.index(b) for b in arguments)

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
        shared = self.most_threads != 1 and sum(one.effort for one in work) > least_shared()
        team = f" num_threads({self.most_threads})" if self.most_threads else ""
        threads = shared and not any(one.parallel for one in work)
        lines = [f"/* {len(names)} kernels in one call */", f"void {self.groups[names]}_call(void** a)", "{", *tables]
        lines += [f"    #pragma omp parallel for schedule(static){team}"] if threads else []
        return "\n".join((*lines, f"    for (int64_t k = 0; k < {len(names)}; ++k) {call};", "}"))

    def printer(self, kernel: FusedKernel, choice: TuningConfig) -> CKernel:
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


def _comment(kernel: FusedKernel, tried: tuple[Measurement, ...], as_another: str | None) -> list[str]:
    """What a kernel fuses, for the reader, and whose function it is if not its own."""
    ops = ", ".join(dict.fromkeys(op.removeprefix("aten.") for op in kernel.ops))
    lines = [f"/* {ops}", f" * rows {[str(d) for d, i in zip(kernel.dims, kernel.inner) if not i]}".replace("'", "")
             + f", of {[str(d) for d, i in zip(kernel.dims, kernel.inner) if i]}".replace("'", "")]  # fmt: skip
    lines += [f" * {origin}" for origin in kernel.origins[:12]]
    lines += [f" * as {as_another}, with numbers of its own"] if as_another else []
    lines += [f" * {'runs' if n == 0 else 'tried'}: {trial}" for n, trial in enumerate(tried)]
    return [*lines, " */"]
