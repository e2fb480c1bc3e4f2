"""Builds the native core (csrc/) against the torch that is already installed."""

from pathlib import Path

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

SOURCES = sorted(str(p) for p in Path("csrc").glob("*.c*") if p.suffix in (".c", ".cpp"))

setup(
    ext_modules=[
        CppExtension(
            "torchglass._native",
            SOURCES,
            # OpenMP's functions are those of the library that torch has loaded: another one would have its own threads
            extra_compile_args=["-O2", "-g0", "-fvisibility=hidden", "-fopenmp", "-Wall"],
        )
    ]
    if SOURCES
    else [],
    cmdclass={"build_ext": BuildExtension},
)
