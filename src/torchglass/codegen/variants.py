"""Every kernel of a graph in several ways, in one C file: what mode="max-autotune" measures.

A layernorm's backward over (4096, 256) on two threads is printed for one and two threads and row blocks of 8, 16, 32.
"""

from __future__ import annotations

from ..records.kernels import Candidates, TuningConfig
from ..records.schedule import ScheduledGraph
from ..records.target import Cpu, Targets
from .c import Unit
from .c_kernel import adapter
from .prelude import prelude_of, words_of
from .run import by_target

TILES = (16, 32, 64)
ROW_BLOCKS = (8, 16)  # never above the default: larger blocks add up less exactly


def variants(scheduled: ScheduledGraph, targets: Targets, threads: int) -> Candidates:
    """All ways of the kernels on the CPU that differ in their C. ``threads``: how many PyTorch uses."""
    parts: list[str] = []
    functions: dict[str, tuple[tuple[TuningConfig, str], ...]] = {}
    arguments = {}
    for target, part in by_target(scheduled, targets).items():
        if not isinstance(target, Cpu):
            continue
        unit = Unit(part, target)
        for schedule in part.schedules:
            texts: dict[str, tuple[TuningConfig, str]] = {}
            for choice in _choices(min(threads, target.threads or threads)):
                printer = unit.printer(schedule, choice)
                text = printer.text("kernel")
                if text not in texts:
                    name = f"{schedule.name}_{len(texts)}"
                    texts[text] = choice, name
                    parts.append(
                        f"/* {choice} */\n{printer.text(name)}\n{adapter(name, name, schedule.arguments, {}, ())}"
                    )
            functions[schedule.name] = tuple(texts.values())
            arguments[schedule.name] = tuple(part.buffers[b] for b in schedule.arguments)
    text = "\n\n".join(parts)
    return Candidates(f"{prelude_of(words_of(text))}\n\n{text}\n", functions, arguments)


def _choices(threads: int) -> list[TuningConfig]:
    """The default first, so that of equally fast ways it stays."""
    teams = [None, *sorted({1, max(1, threads // 2), threads})]
    return [TuningConfig(), *(TuningConfig(n, tile, block) for n in teams for tile in TILES for block in ROW_BLOCKS)]
