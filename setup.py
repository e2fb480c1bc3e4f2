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
            extra_compile_args=["-O2", "-g0", "-fvisibility=hidden", "-Wall", "-Wno-unknown-pragmas"],
        )
    ]
    if SOURCES
    else [],
    cmdclass={"build_ext": BuildExtension},
)
