"""Damaged files: a folder as a compile left it, one file after the other damaged, each start right all the same.

python -m tests.store.damage FOLDER COUNT [SEED]

Every round damages one file (cut off, zeroed pages, flipped bytes), starts over as a new run of the program does, and
compares with eager. Bytes flip to what no editor writes where the file is one that runs: another letter is an edit.
"""

from __future__ import annotations

import contextlib
import io
import random
import sys
from pathlib import Path

import torch
from tests.store.sharing import function, right

import torchglass as tg
from torchglass.runtime import store, toolchain


def start(folder: Path) -> None:
    """As another run of the program: nothing is known of the folder, no library is loaded."""
    store._by_root.clear()
    toolchain._libraries.clear()
    with store.use(folder), contextlib.redirect_stderr(io.StringIO()):
        compiled = tg.compile(function, fullgraph=True)
        right(compiled, 6)
    record = tg.explain(compiled).record
    assert not record.fallbacks, record.fallbacks
    (graph,) = record.entries[0].graphs
    assert {side.name for side in graph.sides if side.kernels} == {"forward", "backward"}


def damage(path: Path, rng: random.Random) -> str:
    """One kind of damage, at a random place."""
    content = bytearray(path.read_bytes())
    kind = rng.choice(("cut", "emptied", "zeroed", "flipped", "flipped in places"))
    if not content or kind == "emptied":
        path.write_bytes(b"")
        return kind
    place = rng.randrange(len(content))
    if kind == "cut":
        del content[place:]
    elif kind == "zeroed":
        end = min(len(content), place + rng.choice((1, 512, 4096)))
        content[place:end] = bytes(end - place)
    else:
        for _ in range(1 if kind == "flipped" else 20):
            place = rng.randrange(len(content))
            content[place] ^= rng.randrange(1, 256) if path.suffix in (".so", ".json", "") else 0x80
    path.write_bytes(bytes(content))  # in place: who has it mapped sees it
    return kind


def main(folder: Path, count: int, seed: int = 0) -> None:
    rng = random.Random(seed)
    start(folder)
    for n in range(count):
        files = sorted(p for p in folder.rglob("*") if p.is_file() and ".stale" not in p.name and p.name != ".lock")
        path = rng.choice(files)
        kind = damage(path, rng)
        try:
            start(folder)
        except BaseException:
            print(f"round {n}: {path.relative_to(folder)} {kind}", flush=True)
            raise
        if n % 50 == 0:
            for left in folder.rglob("*.stale*"):
                left.unlink()
    print(f"{count} damaged files, 0 wrong")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
