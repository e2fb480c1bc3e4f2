"""Builds the native core (csrc/) against the torch that is already installed."""

import os
from pathlib import Path

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

SOURCES = sorted(Path("csrc").glob("*.cpp"))
ALONE = {Path("csrc/attention_avx512.cpp")}  # its pragmas hold to the end of what is compiled with it


def joined(sources: list[Path], most: int) -> list[str]:
    """Files that include the sources, one for each processor: PyTorch's headers take 13 of a source's 14 seconds."""
    folder = Path("build/joined")
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for n in range(min(most, len(sources))):
        file = folder / f"native_{n}.cpp"
        text = "".join(f'#include "{source.resolve()}"\n' for source in sources[n::most])
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
        made.append(str(file))
    return made


setup(
    ext_modules=[
        CppExtension(
            "torchglass._native",
            [*joined([source for source in SOURCES if source not in ALONE], os.cpu_count() or 1), *map(str, ALONE)],
            # OpenMP's functions are those of the library that torch has loaded: another one would have its own threads
            extra_compile_args=["-O2", "-g0", "-fvisibility=hidden", "-fopenmp", "-Wall"],
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
