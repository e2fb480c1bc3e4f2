"""A graph in kernels on its way through the compilers of C and Triton, with the graphs that it calls.

build = KernelBuild(printed)        # compilers are at work, in other processes
call = build.finish(options)        # loaded, the graphs that it calls first
build.records(), build.kept()       # for people, and for later processes
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..options import CompileOptions
from ..records.compilation import SideRecord
from ..records.kept_graph import KeptKernels, NotKept
from ..records.kernels import FusedGraph, KernelSources
from ..runtime import triton_kernels
from ..runtime.graph_calls import GraphCall
from ..runtime.load import Building, graph_file, load
from ..runtime.store import Artifact


@dataclass(frozen=True)
class Printed:
    """A graph in kernels, its files, and the graphs that it calls, by the names of their functions."""

    name: str
    fused: FusedGraph
    sources: KernelSources
    kernels: tuple[Artifact, ...]
    wrapper: Artifact
    called: dict[str, Printed]

    @property
    def files(self) -> tuple[tuple[str, str], ...]:
        """Names and texts."""
        return tuple((artifact.path.name, artifact.text) for artifact in (*self.kernels, self.wrapper))


class KernelBuild:
    """One graph; compilers begin when it is made."""

    def __init__(self, printed: Printed) -> None:
        self.printed = printed
        begun = (BUILDERS[file.path.suffix](file) for file in printed.kernels if not file.edited)
        self.building = [one for one in begun if one is not None]
        self.called = {name: KernelBuild(one) for name, one in printed.called.items()}
        self.call: weakref.ref[GraphCall] | None = None  # of the wrapper
        self.libraries: dict[str, Path] = {}  # what was compiled of kernels, by their files' names

    @property
    def compilers(self) -> str:
        """What they are called."""
        return " and ".join(COMPILERS[one.path.suffix] for one in self.printed.kernels) or "C"

    def finish(self, options: CompileOptions) -> GraphCall:
        """The wrapper's call. Raises ToolchainError."""
        printed, handed = self.printed, self.printed.sources.plan.handed
        called = {n: graph_file(one.printed.wrapper.path, one.finish(options)) for n, one in self.called.items()}
        call = load(printed.wrapper, self.building, options, {**handed, **called}, printed.kernels)
        self.libraries = {one.filename: one.file for one in self.building if one.file is not None}
        self.building, self.call = [], weakref.ref(call)
        return call

    def wait(self) -> None:
        """Until the compilers are done, whatever became of it: ``finish`` says that."""
        for build in self._all():
            for one in build.building:
                with suppress(Exception):
                    one.result()

    def stop(self) -> None:
        """Nobody needs the kernels any more."""
        for build in self._all():
            building, build.building = build.building, []
            for one in building:
                one.stop()

    def records(self) -> list[SideRecord]:
        """Of the graph and of those that it calls."""
        return [
            SideRecord(
                build.printed.name,
                fused=build.printed.fused,
                kernels=tuple(build.printed.sources.kernels),
                files=build.printed.files,
                call=build.call,
            )
            for build in self._all()
        ]

    def kept(self) -> KeptKernels:
        """What a later process needs to run it. Raises NotKept."""
        printed = self.printed
        kernels = {one.path.name: one.text for one in printed.kernels}
        if kernels.keys() != self.libraries.keys():
            raise NotKept(f"what was compiled of its {printed.name} lies nowhere")
        sources, called = printed.sources, {name: one.kept() for name, one in self.called.items()}
        runs = printed.wrapper.text, sources.plan.handed, kernels, self.libraries, called
        return KeptKernels(printed.name, *runs, printed.fused, tuple(sources.kernels))

    def _all(self) -> Iterator[KernelBuild]:
        yield self
        for one in self.called.values():
            yield from one._all()


COMPILERS = {".c": "C", ".py": "Triton"}
"""What the stage of a kernels file's compiler is called."""

BUILDERS: dict[str, Callable[[Artifact], Building | triton_kernels.Compiling | None]] = {
    ".c": Building,
    ".py": lambda file: None if triton_kernels.interprets() else triton_kernels.compiling(*file.content),
}
"""What has a kernels file compiled beside this process, if it is."""
