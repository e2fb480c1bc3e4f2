"""The C translation unit of a graph: what it needs of prelude.h, then every different kernel once with its exported
adapter.

Two kernels that are equal but for the names of their buffers (the twelve equal layers of a model) share one function;
so do many that differ in their numbers besides (``c_numbers``).
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ..process import interrupts
from ..records.kernels import FusedKernel, Kernel, Measurement, TuningConfig
from ..records.launch import Launch
from ..records.schedule import Schedule, ScheduledGraph
from ..records.target import Cpu
from .c_kernel import DEFAULT, CKernel, adapter
from .c_numbers import MOST_WRITTEN, Parameterized, parameterized, tables
from .c_ops import CALLED, LIBM
from .prelude import prelude_of, words_of
from .printed import Printed, Together, about, counted

# Words of C, names the printer uses itself, and macros that system headers define in lower case.
RESERVED = frozenset([
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern",
    "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed",
    "sizeof", "static", "struct", "switch", "typedef", "union", "unsigned", "void", "volatile", "while", "asm",
    "typeof", "a", "block", "end", "row", "first", "j", "l", "lane", "stop", "from", "to", "top", "bottom", "team",
    "used", "thread", "total", "sum", "c", "t", "free", "aligned_alloc", "linux", "unix", "errno", "bf16",
    "f16", "bool8",
]) | {name + suffix for name in (*LIBM, *CALLED, "fmod") for suffix in ("", "f")}  # fmt: skip


@dataclass(frozen=True)
class Function:
    """A printed function: a rough count of what it computes, and whether it has threads of its own."""

    name: str
    work: float
    parallel: bool


def run(scheduled: ScheduledGraph, target: Cpu, tried: Mapping[str, tuple[Measurement, ...]]) -> Printed:
    """The kernels of a graph in C."""
    fused = scheduled.fused
    unit = Unit(scheduled, target, tried)
    groups = unit.together(fused.kernels)
    return Printed("c", unit.text(f"{fused.graph.name} graph"), unit.kernels, unit.launches, groups)


class Unit:
    """The kernels of a graph; ``launches`` says how to call them, ``text`` is the file."""

    def __init__(
        self,
        scheduled: ScheduledGraph,
        target: Cpu,
        tried: Mapping[str, tuple[Measurement, ...]] = MappingProxyType({}),
    ) -> None:
        self.tables = tables(scheduled.buffers)
        self.buffers = scheduled.buffers | {table.name: table for table in self.tables.values()}
        self.target, self.tried = target, tried
        self.schedules = scheduled.schedules
        self.parts: list[str] = []
        self.words: set[str] = set()  # of the code without comments
        self.functions: dict[tuple[object, TuningConfig], Function] = {}
        self.work: dict[str, Function] = {}  # that a kernel's calls run
        self.groups: dict[tuple[str, ...], str] = {}  # kernels in one call, and the name of its function
        alike = self._alike()
        printed = [self._print(schedule, alike.get(n)) for n, schedule in enumerate(self.schedules)]
        self.kernels = counted(scheduled, printed)
        self.launches = {name: _launch(self.schedules[c.schedule], c.buffers) for name, c in scheduled.calls.items()}

    def _alike(self) -> dict[int, Parameterized]:
        """Those of many kernels that are equal but for their numbers, by place."""
        if len(self.schedules) <= MOST_WRITTEN:
            return {}
        made = [parameterized(schedule, self.tables, self.buffers) for schedule in self.schedules]
        counts = Counter(one.key for one in made if one.tables)
        return {n: one for n, one in enumerate(made) if one.tables and counts[one.key] > MOST_WRITTEN}

    def _print(self, schedule: Schedule, alike: Parameterized | None) -> Kernel:
        interrupts.check()
        name, kernel = schedule.name, schedule.kernel
        tried = self.tried.get(name, ())
        choice = tried[0].choice if tried else DEFAULT
        one = alike or Parameterized(schedule, {}, name)
        lines = []
        function = self.functions.get((one.key, choice))
        if function is None:
            printer = self.printer(one.schedule, choice)
            function = Function(name, schedule.mapping.work, printer.parallel)
            self.functions[one.key, choice] = function
            lines.append(printer.text(name))
        lines.append(adapter(name, function.name, one.schedule.arguments, one.tables, schedule.symbols))
        as_another = function.name if function.name != name else None
        self.words |= words_of("\n".join(lines))
        text = "\n".join((*_comment(kernel, tried, as_another), *lines))
        self.parts.append(text)
        self.work[name] = function
        loops = tuple(loop.name for loop in kernel.loops)
        return Kernel(name, "c", text, schedule.arguments, loops, kernel.ops, kernel.origins, tried=tried)

    def together(self, kernels: Sequence[FusedKernel]) -> list[Together]:
        """How to call the kernels that run in one call with others: the first of each run, and those beside it."""
        runs: list[list[str]] = []
        for kernel in kernels:
            if kernel.horizontal:
                runs[-1].append(kernel.name)
            else:
                runs.append([kernel.name])
        return [Together(self._named(run), tuple(run)) for run in runs if len(run) > 1]

    def _named(self, run: list[str]) -> str:
        names = tuple(self.launches[name].kernel for name in run)
        return self.groups.setdefault(names, f"kernel_group_{len(self.groups)}")

    def _group(self, names: tuple[str, ...]) -> str:
        """The function of several kernels, whose arguments are theirs in turn; one parallel region if all are small."""
        symbols = {schedule.name: len(schedule.symbols) for schedule in self.schedules}
        counts = {kernel.name: len(kernel.arguments) + symbols[kernel.name] for kernel in self.kernels}
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
        total_work = sum(one.work for one in work)
        shared = self.target.threads != 1 and total_work > self.target.schedule.least_shared(self.target.sleeping)
        team = f" num_threads({self.target.threads})" if self.target.threads else ""
        threads = shared and not any(one.parallel for one in work)
        lines = [f"/* {len(names)} kernels in one call */", f"void {self.groups[names]}_call(void** a)", "{", *tables]
        lines += [f"    #pragma omp parallel for schedule(static){team}"] if threads else []
        return "\n".join((*lines, f"    for (int64_t k = 0; k < {len(names)}; ++k) {call};", "}"))

    def printer(self, schedule: Schedule, choice: TuningConfig) -> CKernel:
        """What prints a kernel in the chosen way."""
        return CKernel(schedule, self.buffers, identifier, self.target, choice)

    def text(self, title: str) -> str:
        head = (
            f"/* {title}: {len(self.parts)} kernels. Generated by torchglass; edit and run again to see the effect. */"
        )
        groups = list(map(self._group, self.groups))
        prelude = prelude_of(self.words.union(*map(words_of, groups)))
        return "\n\n".join((head, prelude, *self.parts, *groups)) + "\n"


def _launch(schedule: Schedule, buffers: tuple[str, ...]) -> Launch:
    return Launch(schedule.name, buffers, schedule.symbols)


OWN = frozenset(["s", "t", "r", "i", "acc", "step", "tile", "got", "kept", "int", "uint"])
"""What the printer's own names begin with, before a number, and what sizes are called: s0, t1, r1, i0, acc1, step8,
tile0, got0, kept0, int64_t.
"""


@functools.lru_cache(4096)
def identifier(name: str) -> str:
    """A C name for a buffer: free of C's words, of the prelude's and of the printer's own names."""
    plain = "".join(c if c == "_" or (c.isascii() and c.isalnum()) else "_" for c in name)
    stem = "".join(itertools.takewhile(str.isalpha, plain))
    ours = stem in OWN and plain[len(stem) : len(stem) + 1].isdigit()
    taken = plain in RESERVED or plain.startswith(("tg_", "omp_", "b_")) or plain[:1].isdigit()
    macro = plain.upper() == plain and plain.strip("_") != ""
    return f"b_{plain}" if taken or ours or macro else plain


def _comment(kernel: FusedKernel, tried: tuple[Measurement, ...], as_another: str | None) -> list[str]:
    """What a kernel fuses, for the reader, and whose function it is if not its own."""
    rows, columns = ([d for d, inner in zip(kernel.dims, kernel.inner) if inner is wanted] for wanted in (False, True))
    first, *lines = about(kernel, rows, columns)
    lines += [f"as {as_another}, with numbers of its own"] if as_another else []
    lines += [f"{'runs' if n == 0 else 'tried'}: {trial}" for n, trial in enumerate(tried)]
    return [f"/* {first}", *(f" * {line}" for line in lines), " */"]
