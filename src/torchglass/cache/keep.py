"""Keeps an entry that was just made: what it is made of in, files out; or the reason why it cannot be kept.

What no later process could find again (an object that exists in this one alone, a backend of the program's) is not
kept, and the log says which guard or value was to blame.
"""

from __future__ import annotations

import base64
import json
import logging
import marshal
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any, TypeAlias, TypeVar

import torch.fx

from ..options import CompileOptions
from ..records.breaks import Resume
from ..records.capture import Capture
from ..records.compilation import Keeping
from ..records.declared_sizes import DeclaredSizes
from ..records.guards import Guard
from ..records.kept_graph import KeptGraph, KeptKernels, KeptSide, NotKept
from ..records.partition import Partition
from ..records.render_graph import targets_within
from ..runtime.guard_build import table_rows
from . import folder, kept_sizes, key, told
from .answers import Answer, compared
from .constants import kept_objects
from .modules import check_files, homes, is_versioned, module_digests
from .objects import described, name_of
from .operators import all_facts
from .roots import Root
from .table import kept_rows
from .told_guards import guards_text
from .values import encoded

log = logging.getLogger("torchglass.cache")

T = TypeVar("T")
Texts: TypeAlias = "dict[str, str | bytes]"
"""Contents by file name."""

MOST_SIZES = 16
"""Graphs for sizes that an entry may have, of all processes."""

OF_PARTITION = (
    "saved", "input_names", "outputs", "mutations", "returned", "differentiable", "tangents", "gradients", "watched",
    "liveness", "parts", "autocast", "input_sizes", "result_sizes", "saved_sizes",
)  # fmt: skip
"""The fields that the runtime reads: not the graphs."""


def keep(
    root: Root | None,
    function: FunctionType,
    options: CompileOptions,
    declared: DeclaredSizes,
    texts: Texts | NotKept | None,
    gm: torch.fx.GraphModule | None,
    graph: KeptGraph | NotKept | None,
) -> Keeping:
    """Keep an entry, of ``entry_texts`` and its graph: where it is, or why nowhere, as the log says too.

    Never raises.
    """
    if root is None or texts is None:
        return Keeping()
    name = f"{function.__module__}.{function.__qualname__}"
    try:
        if isinstance(texts, NotKept):
            raise texts
        if isinstance(graph, NotKept):
            raise graph
        program, machine = key.program(function, options, declared), key.of_machine()
        contents = texts if gm is None or graph is None else {**texts, **_graph(gm, graph)}
        there = folder.place(root.path, function.__qualname__, program, machine)
        made = folder.write(there, contents)
        folder.write_keys(there, program, machine)
        folder.prune_now_and_then(root.path)
        return Keeping(made)
    except NotKept as error:
        log.info("this entry of `%s` is not kept for later processes: %s", name, error)
        return Keeping(why_not=str(error))
    except Exception as error:  # a full disk, a defect of ours: it is compiled again
        log.info("this entry of `%s` could not be kept: %s: %s", name, type(error).__name__, error, exc_info=error)
        return Keeping(why_not=f"{type(error).__name__}: {error}")


def part_of(root: Root | None, make: Callable[[Root], T]) -> T | NotKept | None:
    """What ``make`` gives, or why it cannot be kept; None where nothing is to be kept."""
    if root is None:
        return None
    try:
        return make(root)
    except NotKept as error:
        return error
    except Exception as error:  # a defect of ours is no reason for a failed compile
        return NotKept(f"{type(error).__name__}: {error}")


def keep_backward(entry: Path, partition: Partition, kept: Callable[[], KeptSide]) -> None:
    """Add a backward that was compiled later to its entry: what ``kept`` gives. Never raises."""
    try:
        side = kept()
        folder.write(entry / "graph_0", _backward(partition, side), f"kept_{side.name}")
    except Exception as error:  # a folder that is gone, a defect of ours: it is compiled again
        log.info("a backward is not kept in %s: %s", entry, error)


def keep_sizes(entry: Path, sizes: Sequence[int], gm: torch.fx.GraphModule, kept: Callable[[], KeptGraph]) -> None:
    """Add a graph for sizes that many calls have to its entry: ``gm``, compiled. Never raises."""
    try:
        place = entry / "graph_0"
        if len(list(place.glob(f"{kept_sizes.PREFIX}*"))) < MOST_SIZES:
            folder.write(place, _graph(gm, kept()), kept_sizes.folder_name(sizes))
    except Exception as error:  # a folder that is gone, a defect of ours: it is compiled again
        log.info("a graph for sizes is not kept in %s: %s", entry, error)


def entry_texts(function: FunctionType, capture: Capture, guards: Sequence[Guard], asked: bool) -> Texts:
    """The files of an entry beside those of its graph: half of what keeping takes, and the C compiler is still at work.
    ``asked``: by a person. Raises NotKept.
    """
    answers, asked_of = _answers(capture.answers)
    modules = module_digests(_modules(function, guards) | asked_of)
    if not asked:
        check_files(function, modules)
    contents: Texts = {"transformed.py": capture.transformed}
    facts = {
        "names": {name: _named(value, function) for name, value in capture.namespace.items()},
        "resumes": [_resume(resume) for resume in capture.resumes],
        "written": list(capture.written_inputs),
        "may_fail": capture.may_fail,
        "fixed": [[encoded(s), a.why, encoded(a.origin)] for s, a in capture.sizes.used().items()],
        "breaks": [[row.reason, encoded(row.origin), row.hint, row.raises] for row in capture.breaks],
        "answers": answers,
        "data": [[module, name, encoded(value)] for (module, name), value in capture.library_data.items()],
        "modules": modules,
        "graph": 0 if capture.graph is None else len(capture.graph.graph.nodes),
    }
    contents[folder.ENTRY] = _text(facts)
    try:
        contents[folder.TABLE] = _text(kept_rows(table_rows(guards, capture.fetch, function), function))
    except NotKept as error:
        raise NotKept(f"{error}{_blamed(guards, str(error))}") from None
    contents[folder.GUARDS] = guards_text(guards)
    return contents


def _blamed(guards: Sequence[Guard], reason: str) -> str:
    """Which guard it is that cannot be kept for ``reason``, and where it comes from; "" if that is none alone."""
    for guard in guards:
        for value in guard.expected if isinstance(guard.expected, tuple) else (guard.expected,):
            try:
                described(value)
            except NotKept as error:
                if str(error) == reason and guard.source is not None:
                    return f" (`{guard.source.render()}`, {guard.why}, at {guard.origin})"
    return ""


def _answers(answers: Iterable[Answer]) -> tuple[list[Any], set[str]]:
    """Those that can be asked again, of functions and arguments that paths lead to; of what libraries that have
    versions say of other objects, the modules of these. Raises NotKept for a function of the program's.
    """
    found, modules = [], set[str]()
    for function, args, kwargs, result in answers:
        try:
            found.append([name_of(function), encoded(args), encoded(kwargs), *compared(result)])
        except NotKept as error:
            if not is_versioned(str(function.__module__)):
                name = getattr(function, "__qualname__", "a function")
                raise NotKept(f"what {name} answered while it was captured cannot be compared: {error}") from None
            modules |= set().union(*map(homes, (*args, *kwargs.values())))
    return found, modules


def _named(value: Any, function: FunctionType) -> Any:
    """What a free name of the entry stands for; the function itself, which perhaps no path leads to, as such."""
    return {"itself": None} if value is function else encoded(value)


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _resume(resume: Resume) -> dict[str, Any]:
    return {
        "name": resume.name,
        "key": encoded(resume.key),
        "code": base64.b64encode(marshal.dumps(resume.code)).decode(),
        "parameters": list(resume.parameters),
        "line": resume.line,
        "plain": resume.plain,
        "varying": list(resume.varying),
    }


def _graph(gm: torch.fx.GraphModule, graph: KeptGraph) -> dict[str, str | bytes]:
    """The files of a graph, in a folder of its own."""
    partition, made = graph.partition, dict[str, str | bytes]()
    made["captured.py"] = graph.captured
    made[f"captured{told.NODES}"] = told.text_of(graph.nodes)
    if graph.joint:
        made["joint.py"] = graph.joint
    try:
        objects: Any = kept_objects(graph.objects, made)
    except NotKept:
        if partition is None:
            raise
        objects = None  # kernels run; where the captured graph would run instead, the function does
    facts: dict[str, Any] = {
        "objects": objects,
        "enters_grad": graph.enters_grad,
        "inference": None if graph.inference is None else list(graph.inference),
        "operators": all_facts(targets_within(gm)),
        "partition": None,
        "open_sizes": encoded(graph.open_sizes),
    }
    if partition is not None and graph.forward is not None:
        facts["partition"] = {name: encoded(getattr(partition, name)) for name in OF_PARTITION}
        facts["training"] = partition.training
        facts["forward"] = _side(graph.forward, made)
        facts["backwards"] = [_backward_facts(one, side, made) for one, side in graph.backwards]
    made["graph.json"] = _text(facts)
    return {f"graph_0/{name}": content for name, content in made.items()}


def _side(side: KeptSide, contents: dict[str, str | bytes]) -> dict[str, Any]:
    """Adds the files of a side; what else there is to know of it."""
    contents[f"{side.name}.py"] = side.text
    if side.nodes:
        contents[f"{side.name}{told.NODES}"] = told.text_of(side.nodes)
    return {
        "name": side.name,
        "call": encoded(side.call),
        "objects": kept_objects(side.objects, contents),
        "kernels": None if side.kernels is None else _kernels(side.kernels, contents),
    }


def _kernels(graph: KeptKernels, contents: dict[str, str | bytes]) -> dict[str, Any]:
    """The same of a graph in kernels, and of those that it calls."""
    contents[f"{graph.name}_wrapper.py"] = graph.wrapper
    contents.update(graph.kernels)
    libraries = {}
    for name, path in graph.libraries.items():
        libraries[name] = f"{Path(name).stem}.so" if path.suffix == ".so" else path.name
        contents[libraries[name]] = path.read_bytes()
    contents[f"{graph.name}{told.KERNELS}"] = told.text_of((graph.fused, graph.rows))
    return {
        "name": graph.name,
        "handed": kept_objects(graph.handed, contents),
        "libraries": libraries,
        "called": {name: _kernels(one, contents) for name, one in graph.called.items()},
    }


def _backward_facts(partition: Partition, side: KeptSide, contents: dict[str, str | bytes]) -> dict[str, Any]:
    arrived = partition.arrived or tuple(spec.strides for spec in partition.tangents)
    return {
        "side": _side(side, contents),
        "arrived": encoded(arrived),
        "tangents": encoded(partition.tangents),
        "gradients": encoded(partition.gradients),
        "read": list(partition.read),
    }


def _backward(partition: Partition, side: KeptSide) -> dict[str, str | bytes]:
    contents: dict[str, str | bytes] = {}
    facts = _backward_facts(partition, side, contents)
    return {**contents, "backward.json": _text(facts)}


def _modules(function: FunctionType, guards: Sequence[Guard]) -> set[str]:
    """The modules of what guards hold to be the same: code of theirs ran while the program was captured."""
    expected = (value for g in guards for value in (g.expected if isinstance(g.expected, tuple) else (g.expected,)))
    held = {id(value): value for value in expected}
    own = {str(function.__module__), str(function.__globals__.get("__name__"))}
    return own.union(*map(homes, held.values()))
