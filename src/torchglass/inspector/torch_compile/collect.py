"""Listening to torch.compile and writing down what it makes, while a context is open."""

from __future__ import annotations

import contextlib
import gc
import inspect
import logging
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import torch

from ...decompiler import readable
from ...decompiler.compare.sameness import compiled
from .factories import with_factories
from .graphs import graph_file
from .guards import guard_lines, guards_file
from .layout import Entry, Function, Layout
from .names import GRAPH, RESUME, renamed, shown_names
from .output_code import OutputCode
from .replay import remember
from .trace import TraceListener
from .whose import variables_being_compiled, wrapped_name

logger = logging.getLogger("torchglass.inspector")

#: event -> file below graph_N, what it is
_GRAPHS = {
    "dynamo_output_graph": ("captured.py", "The graph that torch.compile captured"),
    "aot_joint_graph": ("joint.py", "Forward and backward in one graph"),
    "aot_forward_graph": ("forward.py", "The forward graph"),
    "aot_inference_graph": ("forward.py", "The forward graph (no gradients asked for)"),
    "aot_backward_graph": ("backward.py", "The backward graph"),
    "inductor_post_grad_graph": ("post_grad.py", "The graph after Inductor's passes, as it is lowered"),
}
_FAILURES = ("dynamo_graph_break_reason", "dynamo_error")
_RESUME = "# What is left of the function after a graph break. torch.compile runs its bytecode, not this file.\n"
_PROLOGUE = re.compile(r"^ *__is_tracing_resume_prologue = (True|False)\n", re.M)
"""A mark of torch.compile's for itself: nothing reads it."""
_NOT_RUN = """torch.compile runs what it lowers this to: breakpoints set here are not hit while it does.
Run this file by itself to step through it."""


class Collection:
    """What one ``collect`` has seen; ``functions`` are the user's, each with entries and resume functions."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.layout = Layout(directory)
        self.waiting: dict[tuple[int, int], list[tuple[str, str, dict[str, Any]]]] = {}
        self.entries: dict[tuple[int, int], Entry] = {}
        self.output_code = OutputCode()

    @property
    def functions(self) -> list[Function]:
        return self.layout.tops

    # -- what torch.compile tells ------------------------------------------------------------------------------------
    def on_event(self, frame: tuple[int, int], name: str, text: str, details: dict[str, Any]) -> None:
        """An event of the trace; before its entry is known (the bytecode comes last) it waits."""
        entry = self.entries.get(frame)
        if entry is None:
            if name == "dynamo_output_graph":  # a restarted analysis captures again: only the last one counts
                self.waiting[frame] = [e for e in self.waiting.get(frame, ()) if e[0] not in _GRAPHS]
            self.waiting.setdefault(frame, []).append((name, text, details))
        else:
            self.write_event(entry, name, text, details)

    def on_bytecode(self, old: CodeType, new: CodeType) -> CodeType | None:
        """A function was compiled: write its entry; returns our own code if it is known to be the same."""
        try:
            with _without_collections():
                return self.write_entry(old, new)
        except Exception:
            logger.warning("could not write what torch.compile made of %s", old.co_name, exc_info=True)
            return None

    # -- writing -----------------------------------------------------------------------------------------------------
    def write_entry(self, old: CodeType, new: CodeType) -> CodeType | None:
        frame = _current_frame()
        compiling = variables_being_compiled()
        function, entry = self.layout.entry(frame, old, new, wrapped_name(old, compiling))
        entry.globals = compiling.get("globals") or _globals(entry)
        entry.new, factories = with_factories(new, entry.globals)
        entry.targets = {**_resume_functions(new, entry.globals), **factories}
        resumes = {name: self.layout.plan(code, caller=function)[1] for name, code in entry.targets.items()}
        entry.names = shown_names(entry.new, resumes)
        self.entries[frame] = entry
        if function.parent is not None and len(function.entries) == 1:
            function.source = _PROLOGUE.sub("", readable(old)) + "\n"
            write(function.folder / "resume_function.py", _RESUME + function.source)
        runs = self.write_transformed(entry)
        for event in self.waiting.pop(frame, ()):
            self.write_event(entry, *event)
        return runs

    def write_transformed(self, entry: Entry) -> CodeType | None:
        path = entry.folder / "transformed.py"
        shown = renamed(entry.new, entry.names)
        text = readable(shown) + "\n"
        runs = None
        if not text.startswith("#"):
            candidate = compiled(text, shown.replace(co_filename=str(path)), None)
            if _frame(candidate) == _frame(entry.old):  # torch.compile insists on it
                runs = renamed(candidate, {new: old for old, new in entry.names.items()})
        entry.runs_own_file = runs is not None
        if runs is None:
            text = "# torch.compile runs its own bytecode for this: breakpoints set here are not hit.\n" + text
        entry.text = text
        write(path, text)
        return runs

    def write_event(self, entry: Entry, name: str, text: str, details: dict[str, Any]) -> None:
        folder = entry.folder / "graph_0"
        if name in _GRAPHS:
            file, title = _GRAPHS[name]
            if name == "inductor_post_grad_graph":
                file = f"post_grad_{_direction(entry, name)}.py"
            elif name == "dynamo_output_graph" and entry.events and any(e[0] == name for e in entry.events):
                return
            entry.files[file] = graph_file(text, f"{title}.", _NOT_RUN)
            write(folder / file, entry.files[file])
        elif name == "inductor_output_code":
            file = f"inductor_{_direction(entry, name)}.py"
            place = details.get("filename") or details.get("file_path")
            entry.files[file] = self.output_code.note(place) + text
            write(folder / file, entry.files[file])
            self.output_code.written(place, folder / file)
        else:
            file = ""
            if name.endswith("compilation_metrics"):
                entry.metrics.append((name, details))
        entry.events.append((name, file, text))

    def write_guards(self) -> None:
        """The guards of every entry that is still in torch.compile's cache."""
        from torch._dynamo.eval_frame import _debug_get_cache_entry_list

        for function in list(self.layout.functions.values()):
            managers = {}
            for cached in _debug_get_cache_entry_list(function.code):
                managers[_numbers(str(cached.compile_id))] = cached.guard_manager
            for n, entry in enumerate(function.entries):
                manager = managers.get(entry.frame)
                if manager is None or entry.guards is not None:
                    continue
                entry.guards = guard_lines(manager, entry.globals)
                frame = f"frame {entry.frame[0]}, compile {entry.frame[1]}"
                write(entry.folder / "guards.py", guards_file(function.name, str(n), frame, entry.guards))

    def finish(self) -> None:
        self.write_guards()
        reasons = [text for events in self.waiting.values() for name, text, _ in events if name in _FAILURES and text]
        if reasons:
            blocks = "".join(f"```\n{text.strip()}\n```\n\n" for text in dict.fromkeys(reasons))
            write(self.directory / "not_compiled.md", f"# Left to Python\n\ntorch.compile gave up on:\n\n{blocks}")
        for function in self.functions:
            remember(function)
            for name, text_of in _reports(function):
                try:
                    write(function.folder / name, text_of())
                except Exception:  # a report that fails must not harm the program it reports on
                    logger.warning("%s of %s could not be written", name, function.name, exc_info=True)


def _reports(function: Function) -> Iterator[tuple[str, Callable[[], str]]]:
    """Names and makers of the files that are made for reading, as for tg.compile's own folders."""
    from ..draw import svg
    from ..flow import flow
    from ..report import report
    from .full_code import full_code
    from .readme import readme
    from .record import function_record

    record = function_record(function)
    yield "README.md", lambda: readme(function)
    yield "full_code.py", lambda: full_code(function)
    yield "report.html", lambda: report(record)
    yield "flow.svg", lambda: flow(record)
    for inner, its_record in zip(function.walk(), record.walk()):
        for entry, its_entry in zip(inner.entries, its_record.entries):
            folder = (entry.folder / "graph_0").relative_to(function.folder).as_posix()
            for graph in its_entry.graphs:
                for side, rows in graph.nodes.items():
                    yield f"{folder}/{side}.svg", lambda rows=rows, side=side: svg(rows, side)  # type: ignore[misc]


def _globals(entry: Entry) -> dict[str, Any]:
    """The globals that ``entry`` runs with: those torch.compile put its graph or resume functions into."""
    made = [n for n in entry.new.co_names if n.startswith((GRAPH, RESUME))]
    modules = [m for m in list(sys.modules.values()) if m is not None]
    for module in modules:
        if made and made[0] in getattr(module, "__dict__", {}):
            return vars(module)
    for module in modules:
        if getattr(module, "__file__", None) == entry.old.co_filename:
            return vars(module)
    return {}


def _resume_functions(code: CodeType, globals_of_function: Any) -> dict[str, CodeType]:
    """The resume functions that transformed ``code`` calls: name to code."""
    found = {}
    for name in code.co_names:
        value = globals_of_function.get(name) if name.startswith(RESUME) else None
        inner = getattr(value, "__code__", None)
        if inner is not None:
            # with free variables the global is a factory of the function
            nested = [c for c in inner.co_consts if isinstance(c, CodeType)]
            found[name] = inner if inner.co_name.startswith("torch_dynamo_resume") or not nested else nested[0]
    return found


def _frame(code: CodeType) -> tuple[tuple[str, ...], ...]:
    """The variables that a caller puts into a frame of the code: parameters, cells of its own and of others."""
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[:count], code.co_cellvars, code.co_freevars


def _direction(entry: Entry, name: str) -> str:
    """Inductor compiles forward first; with a joint graph the second time is the backward."""
    return "forward" if not any(e[0] == name for e in entry.events) else "backward"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _numbers(text: str) -> tuple[int, int]:
    found = re.findall(r"\d+", text)
    return (int(found[-2]), int(found[-1])) if len(found) > 1 else (-1, -1)


def _current_frame() -> tuple[int, int]:
    current = torch._guards.CompileContext.current_compile_id()
    return (current.frame_id, current.frame_compile_id) if current is not None else (-1, -1)


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """The garbage collector waits: what writing makes is gone right after, and going through all that torch has loaded
    takes longer than the writing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextlib.contextmanager
def _without_caches() -> Iterator[None]:
    import torch._functorch.config
    import torch._inductor.config

    inductor: Any = torch._inductor.config
    autograd: Any = torch._functorch.config
    with inductor.patch(fx_graph_cache=False), autograd.patch(enable_autograd_cache=False):
        yield


@contextlib.contextmanager
def collect(directory: str | Path, *, anew: bool = True) -> Iterator[Collection]:
    """While open, what torch.compile makes is written below ``directory``; what was compiled before is not.

    ``anew`` keeps Inductor from taking graphs out of its cache, since it then skips the stages that are to be seen.
    Transformed code whose source was verified and Inductor's output code run from their files, so that breakpoints in
    them are hit; everything else runs as torch.compile made it, and its file says so.
    """
    from torch._dynamo.convert_frame import register_bytecode_hook

    collection = Collection(Path(directory).absolute())
    listener = TraceListener(collection.on_event)
    handle = register_bytecode_hook(collection.on_bytecode)
    listener.install()
    try:
        with _without_caches() if anew else contextlib.nullcontext(), collection.output_code.watching():
            yield collection
    finally:
        listener.remove()
        handle.remove()
        try:
            with _without_collections():
                collection.finish()
        except Exception:  # a folder that cannot be written must not harm the program it shows
            logger.warning("the folder %s is not complete", collection.directory, exc_info=True)
