"""One compiled function: a missed call in, an entry for it out, or the function itself; what all its entries share.

compiled = FunctionState(function, options).release()
compiled(x)         # miss ─ entry_for ─ what compiles (entry_pipeline.py)
"""

from __future__ import annotations

import functools
import itertools
import logging
import weakref
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import replace
from types import CellType, FunctionType
from typing import Any

from . import _native, torch_compat
from .cache.graph import CompileKept
from .cache.restore import Candidates, record_of
from .compilation.reporting import rewrite
from .compilation.timing import compiling
from .marks.declarations import by_parameter, declared_sizes
from .options import CompileOptions
from .process import fallbacks, interrupts
from .process.collector import Paused
from .process.locks import fork_safe_lock, importing
from .records.breaks import Resume
from .records.compilation import Fallback, FunctionRecord
from .records.declared_sizes import DeclaredSizes, FixedSizes
from .records.guards import Guard
from .records.literals import one_line
from .records.origin import UNKNOWN, Origin
from .records.sources import Source
from .runtime import debug_objects, growing
from .runtime import guards as guard_runtime
from .runtime.call_original import call_original
from .runtime.callee_compilation import Callees, Entry, watched
from .runtime.dispatch import compiled_function
from .runtime.store import Folder, current_store
from .switching import stance

log = logging.getLogger("torchglass")

# Records of so many functions called from the regions of one are kept: programs that keep making functions stay flat.
MOST_CALLED = 512


class FunctionState:
    """All that belongs to one compiled function: its entries' records, its folder, its resume functions."""

    def __init__(
        self,
        function: FunctionType,
        options: CompileOptions,
        name: str | None = None,
        parent: FunctionState | None = None,
        bound: tuple[Any, ...] = (),
        rebuild: Callable[[tuple[Any, ...]], Any] | None = None,
        continued: FunctionState | None = None,
    ) -> None:
        code = function.__code__
        self.function = function
        self.options = options
        self.name = one_line(name or function.__qualname__.replace(".<locals>", ""))
        self.parent = parent
        self.lock: Any = parent.lock if parent is not None else fork_safe_lock()  # one thread at a time compiles for it
        origin = Origin(code.co_filename, code.co_firstlineno, code.co_qualname)
        self._continued = continued
        before = continued.record if continued is not None else None
        self.record: FunctionRecord = FunctionRecord(self.name, origin, function=function, continued=before)
        self.resume_names: dict[Hashable, str] = {}
        self.resumes: dict[Hashable, _native.CompiledFunction] = {}
        self.guards: list[Sequence[Guard]] = []
        self.candidates = self._candidates()
        self.varying: set[str] = set()  # parameters whose numbers change from call to call
        self.changes: dict[Source, int] = {}  # how often another number or generator made an entry necessary
        self.data_sizes = True  # whether graphs may have sizes that data decide
        self.asked_of_data = "", UNKNOWN  # what was asked of one where they may not, and where
        self.fixed: FixedSizes = {}  # sizes that change, and that a compile could not leave open
        self.shapes = by_parameter(options.dynamic_shapes, function) if parent is None else {}
        self.called: bool = parent is not None and parent.called  # from a region of another one, or in one that was
        self.ran = False  # at least once, by the function itself, for a stance that begins so
        self.by_backend: dict[Any, FunctionState] = {}  # the same function by another backend: a stance that forces one
        self._folder: Folder | None = None
        # the compiled function owns the state, not the other way round
        self._keep: Any = compiled_function(function, self.miss, bound, rebuild)
        self.compiled = weakref.ref(self._keep)
        self.callees: Callees = (
            parent.callees if parent is not None else Callees(_callee_of(self), _entry_for, _is_idle)
        )

    def release(self) -> _native.CompiledFunction:
        """The compiled function, handed to its owner."""
        compiled, self._keep = self._keep, None
        compiled.function_state = self
        return compiled

    @property
    def folder(self) -> Folder:
        if self._folder is None:
            if self.parent is not None:
                self._folder = self.parent.folder.child(self.name)
            else:
                short = self.name.rpartition(".<locals>.")[2] or self.name
                self._folder = current_store().folder(short, self, self.function.__code__)
        debug_objects.moved(self.record, self._folder.path)  # a process may have to go on elsewhere, a forked one does
        return self._folder

    @property
    def continued(self) -> FunctionState:
        """Whose middle this enters; itself if it is no resume function."""
        return self if self._continued is None else self._continued

    def root(self) -> FunctionState:
        return self if self.parent is None else self.parent.root()

    def reset(self) -> None:
        """Forget all entries and resume functions."""
        compiled = self.compiled()
        if compiled is not None:
            compiled.clear()
            compiled.disabled = False
            compiled.region = None
        if self.parent is None:
            self.callees.clear()
        for resume in self.resumes.values():
            resume.function_state.reset()
        self.resumes.clear()
        self.resume_names.clear()
        self.guards.clear()
        self.candidates = self._candidates()
        self.by_backend.clear()
        self.ran = False
        self._folder = None
        before = self.record.continued
        self.record = FunctionRecord(self.record.name, self.record.origin, function=self.function, continued=before)

    # --- a call that no entry fits ---------------------------------------------------------------------------------
    def miss(self, arguments: tuple[Any, ...]) -> Any:
        """Compile an entry for these arguments and run it; run the original function when that is not possible."""
        entry = stance.entry_for(self, arguments)
        if entry is not None:
            return entry[0](*arguments, entry[1])
        compiled = self.compiled()
        if compiled is None or compiled.region is None:
            return call_original(self.function, arguments)
        with compiled.region:
            return call_original(self.function, arguments)

    def entry_for(self, arguments: tuple[Any, ...]) -> Entry | None:
        """A new entry for these arguments and what its guards fetched; None to run the original function."""
        compiled = self.compiled()
        if compiled is None or compiled.disabled or watched() or interrupts.is_handling():
            return None
        if not compiling.is_at_work():
            with self.lock:  # what a signal raises is no failed compile: it passes through all of this
                return interrupts.whole(lambda: self._entry_for(compiled, arguments))
        # a compile holds what other threads wait for: it must not wait for what they hold
        if not self.lock.acquire(blocking=False):
            return None
        try:
            return self._entry_for(compiled, arguments)
        finally:
            self.lock.release()

    def _entry_for(self, compiled: _native.CompiledFunction, arguments: tuple[Any, ...]) -> Entry | None:
        with torch_compat.anomalies.as_before():
            found = _entry_of_another_thread(compiled, arguments)
        if found is not None or compiled.disabled:
            return found
        declared = declared_sizes(self.shapes, guard_runtime.parameter_names(self.function), arguments)
        if not self._below_limit(compiled):
            return None
        if self._grows(compiled, arguments):
            return None
        kept = self._kept(compiled, arguments, declared)
        if kept is not None:
            return kept
        with importing:
            from .entry_pipeline import new_entry  # all stages: half a second, for which `compile` need not wait

        return new_entry(self, compiled, arguments, declared)

    def _candidates(self) -> Candidates:
        backward = functools.partial(_compile_kept, self.options, self.name)
        sizes = functools.partial(_compile_for_sizes, self.options, self.name)
        return Candidates(self.function, self.options, CompileKept(backward, sizes, self.options.get("hot_calls")))

    def _kept(
        self, compiled: _native.CompiledFunction, arguments: tuple[Any, ...], declared: DeclaredSizes
    ) -> Entry | None:
        """An entry that an earlier process has kept, added to the function's, and what its guards fetched."""
        names = {"compiled_calls": self.callees.region}
        with Paused():  # half of what the entry of 48 layers took
            found = self.candidates.entry_for(arguments, declared, names, self.continuation)
        if found is None:
            return None
        index = len(self.guards)
        self.guards.append(found.guards)
        for source, why, origin in found.fixed:
            self.fix([source], why, origin)
        self.record.entries.append(record_of(found, index, self.parent.name if self.parent is not None else None))
        compiled.add_entry(found.table, found.entry)
        log.info("`%s` (%s): entry %d was kept in %s", self.name, self.record.origin, index, found.kept.path)
        return found.entry, found.fetched

    def under(self, backend: Any) -> FunctionState:
        """The same function compiled by another backend, its entries apart from these."""
        if backend == self.options.backend:
            return self
        state = self.by_backend.get(backend)
        if state is None:
            name = f"under_{backend if isinstance(backend, str) else getattr(backend, '__name__', 'backend')}"
            state = FunctionState(self.function, self.options.with_backend(backend), name, self)
            state.shapes = self.shapes
            state = self.by_backend.setdefault(backend, state)
        return state

    def why_missed(self, arguments: tuple[Any, ...]) -> list[str]:
        """For each entry, latest first, what keeps it from taking the call."""
        scope = guard_runtime.scope_of(self.function, arguments)
        failures = (guard_runtime.explain_failure(guards, scope) for guards in reversed(self.guards))
        return [str(failure) for failure in failures if failure is not None]

    def _below_limit(self, compiled: _native.CompiledFunction) -> bool:
        limit = self.options.get("cache_limit")
        if len(compiled.entries) < limit:
            return True
        reasons = "; ".join(
            dict.fromkeys(str(r.guard.source or r.guard.check) for r in self.record.recompiles if r.guard)
        )
        message = f"`{self.name}` has {limit} entries; what none of them takes runs eagerly from now on."
        if reasons:
            message += f" What kept changing: {reasons}."
        self._make_no_more(compiled, (), message, "cache limit")
        return False

    def _grows(self, compiled: _native.CompiledFunction, arguments: tuple[Any, ...]) -> bool:
        """Whether this call differs from the newest entry in sizes alone, as too many did: it, and those like it, run
        the function.
        """
        rows = zip(self.record.recompiles, self.record.entries[1:])  # not of calls that raise
        recompiles = [row for row, entry in rows if not any(found.raises for found in entry.breaks)]
        if not growing.is_growing(recompiles, compiled.hits, compiled.misses):
            return False
        guards = growing.without_sizes(self.guards[-1])
        if guard_runtime.build_table(guards, (), self.function).check(arguments) is None:
            return False
        grown = self.record.recompiles[-1].guard
        message = (
            f"`{self.name}` was compiled at more than a third of its calls, for another size each time: calls with new "
            f"sizes run eagerly from now on. What kept growing: {grown.source if grown else 'an argument'}."
        )
        self._make_no_more(compiled, guards, message, "sizes")
        return True

    def _make_no_more(
        self, compiled: _native.CompiledFunction, guards: Sequence[Guard], message: str, stage: str
    ) -> None:
        """Calls that no entry takes, and for which ``guards`` hold, run the function."""
        fallbacks.say(message, self.record.origin)
        self.record.fallbacks.append(Fallback(message, self.record.origin, stage))
        compiled.add_plain(guard_runtime.build_table(guards, (), self.function))

    # --- other functions -------------------------------------------------------------------------------------------
    def continuation(self, resume: Resume) -> FunctionType | _native.CompiledFunction:
        """The user's bytecode from one of its instructions on: a compiled function of its own, one for all entries and
        rounds that go on there, if it is not to stay plain.
        """
        function = FunctionType(resume.code, self.function.__globals__, None, None, self.function.__closure__)
        return function if resume.plain else self._resume_function(resume, function)

    def _resume_function(self, resume: Resume, function: FunctionType) -> _native.CompiledFunction:
        continued = self.continued
        known = continued.resumes.get(resume.key)
        if known is not None:
            known.function_state.varying.update(resume.varying)
            return known
        state = FunctionState(function, self.options, resume.name, continued, continued=continued)
        state.varying.update(resume.varying)
        state.record.source = functools.partial(decompiled, resume)
        state.record.origin = replace(state.record.origin, line=resume.line)
        continued.record.resumes.append(state.record)
        compiled = continued.resumes[resume.key] = state.release()
        continued.resume_names.setdefault(resume.key, resume.name)  # one from a folder has its name already
        compiled.continues = True
        store = current_store() if self._folder is None else self._folder.store
        if store.runs == "lines":
            compiled.disabled = True
            why = "your own lines were asked for after a graph break (runs='lines')"
            state.record.fallbacks.append(Fallback(why, state.record.origin, "asked"))
        return compiled

    def _callee(self, function: FunctionType) -> _native.CompiledFunction:
        """A function called from a region of this one, as a compiled function of its own."""
        # a copy, so that functions that come and go do not live on in their compiled forms; the record has not even
        # their cells
        copy = _copy_with(function, function.__closure__)
        taken = {record.name for record in self.record.called}
        short = function.__code__.co_qualname.rpartition("<locals>.")[2].replace(".", "_")
        candidates = (f"called_{short}{'' if n == 1 else f'_{n}'}" for n in itertools.count(1))
        state = FunctionState(copy, self.options, next(name for name in candidates if name not in taken), self)
        state.called = True
        state.record.function = _copy_with(function, tuple(CellType() for _ in function.__closure__ or ()) or None)
        self.record.called.append(state.record)
        del self.record.called[:-MOST_CALLED]
        return state.release()

    def fix(self, sizes: Collection[Source], why: str, origin: Origin) -> None:
        """Sizes that a compile could not leave open, or that it relied on, are numbers from now on."""
        self.fixed.update(dict.fromkeys(sizes, (why, origin)))
        for source in sizes:
            self.changes.pop(source, None)

    def write_reports(self) -> None:
        root = self.root()
        rewrite(root.record, root.folder)


def _copy_with(function: FunctionType, closure: tuple[CellType, ...] | None) -> FunctionType:
    copy = FunctionType(function.__code__, function.__globals__, function.__name__, None, closure)
    copy.__qualname__, copy.__module__ = function.__qualname__, function.__module__
    return copy


def _callee_of(state: FunctionState) -> Callable[[FunctionType], _native.CompiledFunction | None]:
    """``state._callee``, which keeps no state alive: a compiled function that is dropped goes at once."""
    kept = weakref.ref(state)

    def callee(function: FunctionType) -> _native.CompiledFunction | None:
        state = kept()
        return None if state is None else state._callee(function)

    return callee


def _compile_kept(options: CompileOptions, name: str, *backward: Any) -> Any:
    with importing:
        from .kept_backward import compile_kept
    return compile_kept(options, name, *backward)


def _compile_for_sizes(options: CompileOptions, name: str, *graph: Any) -> Any:
    with importing:
        from .lazy_specialization import of_kept
    return of_kept(options, name, *graph)


def _entry_of_another_thread(compiled: _native.CompiledFunction, arguments: tuple[Any, ...]) -> Entry | None:
    """The entry that was added while this thread waited for its turn to compile."""
    for table, entry in compiled.entries:
        fetched = table.check(arguments)
        if fetched is not None:
            return entry, fetched
    return None


torch_compat.hide_from_dynamo(FunctionState.miss.__code__)


def _entry_for(compiled: _native.CompiledFunction, arguments: tuple[Any, ...]) -> Entry | None:
    return stance.entry_for(compiled.function_state, arguments)


def _is_idle(compiled: _native.CompiledFunction) -> bool:
    """Whether there are no graphs in the function and what continues it: compiling it only costs."""
    record = compiled.function_state.record
    if any(entry.graphs for function in record.walk() for entry in function.entries):
        return False
    return len(record.entries) > (1 if record.resumes else 0)  # what continues the first entry has not run yet


def decompiled(resume: Resume) -> str:
    """A resume function's text, for reading: the bytecode is what runs."""
    from .decompiler import readable

    return readable(resume.code, name=resume.name)
