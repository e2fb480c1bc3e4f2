"""Every kernel of a graph in several ways, in one C file: what mode="max-autotune" measures.

A layernorm's backward over (4096, 256) on two threads is printed for one and two threads and row blocks of 8, 16, 32.
"""

from __future__ import annotations

from ..records.kernels import Candidates, FusedGraph, TuningConfig
from .c import Unit
from .c_kernel import adapter
from .prelude import prelude_of
from .run import check

TILES = (16, 32, 64)
ROW_BLOCKS = (8, 16)  # never above the default: larger blocks add up less exactly


def variants(fused: FusedGraph, threads: int, most_threads: int | None = None) -> Candidates:
    """All ways that differ in their C. ``threads``: how many PyTorch uses; ``most_threads``: how many a kernel may."""
    check(fused)
    unit = Unit(fused.buffers, most_threads)
    unit.add(fused.kernels)
    parts: list[str] = []
    functions: dict[str, tuple[tuple[TuningConfig, str], ...]] = {}
    arguments = {}
    for printed in unit.kernels:
        texts: dict[str, tuple[TuningConfig, str]] = {}
        for choice in _choices(min(threads, most_threads or threads)):
            printer = unit.printer(unit.fused[printed.name], choice)
            text = printer.text("kernel")
            if text not in texts:
                name = f"{printed.name}_{len(texts)}"
                texts[text] = choice, name
                parts.append(f"/* {choice} */\n{printer.text(name)}\n{adapter(name, name, printer.arguments, {})}")
        functions[printed.name] = tuple(texts.values())
        arguments[printed.name] = tuple(fused.buffers[b] for b in printed.arguments)
    text = "\n\n".join(parts)
    return Candidates(f"{prelude_of(text)}\n\n{text}\n", functions, arguments)


def _choices(threads: int) -> list[TuningConfig]:
    """The default first, so that of equally fast ways it stays."""
    teams = [None, *sorted({1, max(1, threads // 2), threads})]
    return [TuningConfig(), *(TuningConfig(n, tile, block) for n in teams for tile in TILES for block in ROW_BLOCKS)]
