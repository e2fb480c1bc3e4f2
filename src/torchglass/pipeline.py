"""The order of the stages: a missed call in, an entry out; and what happens when a stage fails.

    call misses ─ capture ─ compile_graph ─ entry file ─ entry added, and run
                              └ guard table, resume functions: while the C compiler works

Every text a stage leaves is written to the store first, and the text that the store returns is what runs.
"""

from __future__ import annotations

import functools
import itertools
import logging
import weakref
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import replace
from types import CellType, FunctionType
from typing import Any, NamedTuple

from . import _native, torch_compat
from .backends import registry
from .capture.run import Stopped
from .capture.run import run as capture_run
from .compilation.recompiles import Fixed, because, declared_error, refuse_numbers, size_advice
from .compilation.reporting import report_values, rewrite
from .compilation.timing import Timeline, compiling
from .errors import BackendError, CompileError, DeclaredSizeError, GraphBreakError
from .graph_pipeline import compiling_graph, prepare
from .inspector import progress, show
from .lazy_specialization import by_sizes
from .marks.declarations import by_parameter, declared_sizes
from .options import CompileOptions
from .process import fallbacks, interrupts
from .process.locks import fork_safe_lock
from .records.capture import Capture, GraphBreak, Request, Resume
from .records.compilation import EntryRecord, Fallback, FunctionRecord, GraphRecord, Recompile
from .records.declared_sizes import DeclaredSizes
from .records.guards import Guard
from .records.literals import one_line
from .records.origin import UNKNOWN, Origin
from .records.size_environment import DecidedByData
from .records.size_sources import is_tensor_size, size_guards
from .records.sources import Source
from .records.symbolic_ints import SizesUnfit
from .runtime import debug_objects, edit_errors, growing
from .runtime import guards as guard_runtime
from .runtime.call_original import call_original
from .runtime.callee_compilation import Callees, Entry, watched
from .runtime.dispatch import compiled_function
from .runtime.equal_guards import with_those_of
from .runtime.graph_calls import Foreign
from .runtime.guards import Failure
from .runtime.reconstruct import Undoable, Undone
from .runtime.store import Folder, current_store, load_python
from .switching import stance

log = logging.getLogger("torchglass")

# Records of so many functions called from the regions of one are kept: programs that keep making functions stay flat.
MOST_CALLED = 512


class AroundGraph(NamedTuple):
    """What an entry needs beside its graph."""

    conditions: tuple[Guard, ...]
    table: _native.GuardTable
    guards: guard_runtime.GuardText
    resumes: dict[str, Any]


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
        self.guards: list[tuple[Any, ...]] = []
        self.varying: set[str] = set()  # parameters whose numbers change from call to call
        self.changes: dict[Source, int] = {}  # how often another number or generator made an entry necessary
        self.data_sizes = True  # whether graphs may have sizes that data decide
        self.asked_of_data = "", UNKNOWN  # what was asked of one where they may not, and where
        self.sized_by_data = False  # whether the last capture had such
        self.fixed: Fixed = {}  # sizes that change, and that a compile could not leave open
        self.unfit = "", UNKNOWN, False  # why the last such compile could not, where, and whether for its sizes
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
        nearest = self._note_recompile(arguments)
        try:
            table, entry = compiling.undisturbed(lambda: self._compile(compiled, arguments, declared))
        except (GraphBreakError, CompileError, DeclaredSizeError):
            raise
        except Stopped as stopped:
            self._run_eager_from_now_on(compiled, stopped.found)
            return None
        except RecursionError:
            return None  # the program itself is nested so deeply: Python goes on, as far as that goes
        except Exception as error:
            self._failed(compiled, error)
            return None
        self._log_entry(nearest, arguments)
        fetched = table.check(arguments)
        if fetched is None:
            self._guards_do_not_hold(arguments)
            return None
        return entry, fetched

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

    def _note_recompile(self, arguments: tuple[Any, ...]) -> Failure | None:
        """Why no entry fits, of the one that comes nearest, and what changed since that was made: a prompt is compared
        with prompts, and not with the tokens after the last one. None where there is no entry yet.
        """
        if not self.guards:
            return None
        scope = guard_runtime.scope_of(self.function, arguments)
        failures, newest = guard_runtime.nearest_failures(self.guards, scope)
        if not failures:
            return None
        for source in guard_runtime.changed_values(self.guards[newest], scope):
            if source in self.fixed or (self.options.dynamic is False and is_tensor_size(source)):
                continue
            self.changes[source] = self.changes.get(source, 0) + 1
        told = [Recompile(f.guard, *report_values(f.old, f.new), index) for index, f in failures]
        self.record.recompiles.append(replace(told[0], others=tuple(told[1:])))
        return failures[0][1]

    def _log_entry(self, nearest: Failure | None, arguments: tuple[Any, ...]) -> None:
        """Say that there is an entry more, and what has become of the sizes for which it was made."""
        entry, why = self.record.entries[-1], ""
        if nearest is not None:
            scope = guard_runtime.scope_of(self.function, arguments)
            foreign = "" if registry.resolve(self.options.backend).foreign is None else "its backend is given numbers"
            why_not = "dynamic=False says so" if self.options.dynamic is False else foreign
            advice = size_advice(nearest.guard, scope, self.fixed, self.guards[-1], why_not)
            self.record.recompiles[-1] = replace(self.record.recompiles[-1], advice=advice)
            why = f" again, since {nearest.message} ({nearest.guard.origin}){advice and f'; {advice}'}"
        kernels = sum(len(graph.kernels) for graph in entry.graphs)
        log.info(
            "`%s` (%s) is compiled%s: entry %d, %s, %s, %s",
            self.name,
            self.record.origin,
            why,
            entry.index,
            show.count(len(entry.graphs), "graph"),
            show.count(kernels, "kernel"),
            show.seconds(sum(entry.seconds_by_stage.values())),
        )

    def _run_eager_from_now_on(self, compiled: _native.CompiledFunction, found: GraphBreak) -> None:
        if self.options.fullgraph and not found.raises:
            raise GraphBreakError(self.name, found) from None
        self.record.fallbacks.append(Fallback(found.reason, found.origin, "capture"))
        if not found.raises:
            compiled.disabled = True
            compiled.region = self.callees.region
            self.callees.region.skip(self.function.__code__)
            log.info("`%s` runs eagerly: %s, at %s", self.name, found.reason, found.origin)

    def _failed(self, compiled: _native.CompiledFunction, error: Exception) -> None:
        where = getattr(error, "torchglass_origin", None) or self.record.origin
        if self.options.fullgraph:
            raise CompileError(
                f"compiling `{self.name}` failed at {where}: {error} (see {self.folder.path})"
            ) from error
        self.record.fallbacks.append(Fallback(f"{type(error).__name__}: {error}", where, "compiler"))
        compiled.disabled = True
        log.debug("compiling %s failed", self.name, exc_info=error)
        message = f"torchglass could not compile `{self.name}` and runs it eagerly: {edit_errors.told(error)}"
        if isinstance(error, BackendError):
            message = f"`{self.name}` runs eagerly, since {error}"
        fallbacks.say(message, where, f"artifacts in {self.folder.path}")
        self._write_reports()

    def _guards_do_not_hold(self, arguments: tuple[Any, ...]) -> None:
        failure = guard_runtime.explain_failure(self.guards[-1], guard_runtime.scope_of(self.function, arguments))
        message = f"the guards of a new entry of `{self.name}` do not hold for the call it was made for: {failure}"
        fallbacks.say(message, self.record.origin)

    # --- compiling -------------------------------------------------------------------------------------------------
    def _compile(
        self, compiled: _native.CompiledFunction, arguments: tuple[Any, ...], declared: DeclaredSizes
    ) -> tuple[Any, Callable[..., Any]]:
        known = len(self.guards)
        try:
            with progress.compiling(self.name):
                for request, refusal in self._requests(arguments, declared):
                    before = torch_compat.ThreadState()
                    try:
                        return self._compile_in(Timeline(self.name), compiled, request, refusal)
                    except (SizesUnfit, Exception) as error:
                        self._learn(request, error)
                        del self.guards[known:], self.record.entries[known:]
                        log.info("`%s` is compiled for more of its sizes as they are: %s", self.name, error)
                        log.debug("compiling %s for changing sizes failed", self.name, exc_info=error)
                        before.restore_after(error)
                raise AssertionError("a request without sizes that change comes last")
        except BaseException:  # perhaps from outside, and between two of these lists
            del self.guards[known:], self.record.entries[known:]
            raise

    def _learn(self, request: Request, error: BaseException) -> None:
        """What a failed attempt says of the next one; raises the error if there is none that can do better."""
        by_data = self.sized_by_data or isinstance(error, DecidedByData) or getattr(error, "by_data", False)
        if by_data and request.data_sizes and not isinstance(error, GraphBreakError):
            self.data_sizes = False
            self.asked_of_data = str(error), getattr(error, "torchglass_origin", UNKNOWN)
        elif not request.symbolic or isinstance(error, DeclaredSizeError):
            raise error
        where = getattr(error, "torchglass_origin", UNKNOWN)
        self.unfit = str(error), where, isinstance(error, SizesUnfit)

    def _requests(
        self, arguments: tuple[Any, ...], declared: DeclaredSizes
    ) -> Iterator[tuple[Request, DeclaredSizeError | None]]:
        """Requests to try in turn, without sizes that data decide from the first one on that these did not fit in."""
        for request, refusal in self._more_and_more_numbers(arguments, declared):
            request = replace(request, data_sizes=request.data_sizes and self.data_sizes)
            yield request, refusal
            if request.data_sizes and not self.data_sizes:
                yield replace(request, data_sizes=False), refusal

    def _more_and_more_numbers(
        self, arguments: tuple[Any, ...], declared: DeclaredSizes
    ) -> Iterator[tuple[Request, DeclaredSizeError | None]]:
        """With all sizes and numbers left open that change, or that the program says will; without sizes of 1, which
        are unlike others; with those alone of which the program says so; without any, which is so from then on, and
        an error if it must not be: it may be that the program raises one of its own.
        """
        request, refusal = self._request(arguments, declared), None
        yield request, None
        sizes = {source for source in request.changes if is_tensor_size(source)}
        if request.symbolic:
            scope = guard_runtime.scope_of(self.function, arguments)
            single = {source for source in sizes if guard_runtime.value_at(source, scope) == 1}
            if single and single != sizes:
                yield replace(request, changes=_without(request.changes, single)), None
            strict = {source: 1 for source in request.changes if source in declared and declared[source].strict}
            strict = _without(strict, single)
            if strict and self.unfit[-1]:
                if strict.keys() != request.changes.keys() or request.all_symbolic:
                    yield replace(request, changes=strict, all_symbolic=False), None
                refusal = declared_error(self.name, [*strict], declared, *self.unfit[:2])
            self._fix(sizes - single - strict.keys(), *self.unfit[:2])
            yield replace(request, changes=_without(request.changes, sizes), symbolic=False), refusal

    def _fix(self, sizes: Collection[Source], why: str, origin: Origin) -> None:
        """Sizes that a compile could not leave open, or that it relied on, are numbers from now on."""
        self.fixed.update(dict.fromkeys(sizes, (why, origin)))
        self.changes = _without(self.changes, self.fixed)

    def _compile_in(
        self,
        timeline: Timeline,
        compiled: _native.CompiledFunction,
        request: Request,
        refusal: DeclaredSizeError | None = None,
    ) -> tuple[Any, Callable[..., Any]]:
        prepare(self.options)
        self.sized_by_data = False
        with timeline.stage("capture"), torch_compat.shielded_saved_tensor_hooks():
            capture = compiling.alone(lambda: capture_run(request, self.options, guard_runtime.global_state))
        self.sized_by_data = bool(capture.sizes.by_data)
        if refusal is not None and not any(found.raises for found in capture.breaks):
            raise refusal
        if self.options.fullgraph and capture.breaks:
            found = capture.breaks[0]
            if found.raises:
                raise Stopped(found)
            if not request.data_sizes and not self.data_sizes:
                asked = because(*self.asked_of_data)
                found = replace(found, reason=f"{found.reason} (sizes that data decide do not fit here: {asked})")
            raise GraphBreakError(self.name, found)
        index = len(self.guards)
        if index:
            capture = replace(capture, guards=with_those_of(self.guards[-1], capture.guards))
        folder = self.folder.child(f"entry_{index}")
        names: dict[str, Any] = {**capture.namespace, "compiled_calls": self.callees.region}
        graphs: tuple[GraphRecord, ...] = ()
        if capture.graph is None:
            conditions, table, guards, resumes = self._around_the_graph(timeline, capture, folder)
        else:
            examples, fakes, root = capture.example_inputs, capture.fake_inputs, self.root().record
            inner = folder.child("graph_0")
            with compiling_graph(capture.graph, examples, self.options, inner, fakes, root, Undone) as graph:
                conditions, table, guards, resumes = self._around_the_graph(timeline, capture, folder)
                compilation = graph.finish()
                names["graph_0"] = by_sizes(compilation, graph, capture.graph, fakes)
            graphs = (compilation.record,)
        names |= resumes
        with timeline.stage("guards"):
            if capture.written_inputs and "graph_0" in names:
                names["graph_0"] = Undoable(names["graph_0"], capture.written_inputs)
            artifact = folder.write("transformed.py", capture.transformed)
            entry = load_python(artifact, names).transformed
            torch_compat.hide_from_dynamo(entry.__code__)
            call = names.get("graph_0")
            if isinstance(call, Foreign) or (isinstance(call, Undoable) and not capture.may_fail):
                call.namespaces.append(entry.__globals__)
        self.guards.append(conditions)
        refuse_numbers(self.name, capture, capture.sizes.fixed())
        for source, assumption in capture.sizes.used().items():
            self._fix([source], assumption.why, assumption.origin)
        record = EntryRecord(
            index,
            conditions,
            guards.text,
            artifact.text,
            graphs,
            capture.breaks,
            timeline.events,
            resume_of=self.parent.name if self.parent is not None else None,
            names=capture.namespace,
            expected=guards.expected,
        )
        self.record.entries.append(record)
        self._write_reports()
        compiled.add_entry(table, entry)
        return table, entry

    def _around_the_graph(self, timeline: Timeline, capture: Capture, folder: Folder) -> AroundGraph:
        resumes = {
            resume.name: self._plain_function(resume) if resume.plain else self._resume_function(resume)
            for resume in capture.resumes
        }
        with timeline.stage("guards"):
            conditions = (*capture.guards, *size_guards(capture.sizes))  # the stages have assumed all that they do
            table = guard_runtime.build_table(conditions, capture.fetch, self.function)
            parameters = guard_runtime.parameter_names(self.function)
            guards = guard_runtime.write(conditions, capture.fetch, parameters, self.function.__globals__)
            folder.write("guards.py", guards.text, "read")
        return AroundGraph(conditions, table, guards, resumes)

    def _request(self, arguments: tuple[Any, ...], declared: DeclaredSizes) -> Request:
        names, fullgraph = self.continued.resume_names, self.options.fullgraph
        everything = self.options.dynamic is True
        said = {source: 1 for source, one in declared.items() if one.changes and source not in self.fixed}
        static = {source for source, one in declared.items() if not one.changes}
        changes = said | _without(self.changes, static)
        ours = registry.resolve(self.options.backend).foreign is None
        symbolic = (bool(changes) or everything) and ours and self.options.dynamic is not False
        state = self.function, arguments, self.name, names, changes, fullgraph, self.varying
        return Request(*state, symbolic, symbolic and everything, ours and self.data_sizes, declared)

    def _plain_function(self, resume: Resume) -> FunctionType:
        """The user's bytecode from one of its instructions on."""
        return FunctionType(resume.code, self.function.__globals__, None, None, self.function.__closure__)

    def _resume_function(self, resume: Resume) -> _native.CompiledFunction:
        """The continuation as a compiled function of its own, one for all entries and rounds that go on there."""
        continued = self.continued
        known = continued.resumes.get(resume.key)
        if known is not None:
            known.function_state.varying.update(resume.varying)
            return known
        function = self._plain_function(resume)
        state = FunctionState(function, self.options, resume.name, continued, continued=continued)
        state.varying.update(resume.varying)
        state.record.source = functools.partial(decompiled, resume)
        state.record.origin = replace(state.record.origin, line=resume.line)
        continued.record.resumes.append(state.record)
        compiled = continued.resumes[resume.key] = state.release()
        compiled.continues = True
        if self.folder.store.runs == "lines":
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

    def _write_reports(self) -> None:
        root = self.root()
        rewrite(root.record, root.folder)


def _without(changes: dict[Source, int], sources: Collection[Source]) -> dict[Source, int]:
    return {source: count for source, count in changes.items() if source not in sources}


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
