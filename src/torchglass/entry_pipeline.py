"""The order of the stages of one entry: a missed call in, an entry out; and what happens when a stage fails.

    call misses ─ capture ─ compile_graph ─ entry file ─ entry added, and run
                              └ guard table, resume functions: while the C compiler works

Every text a stage leaves is written to the store first, and the text that the store returns is what runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _native, torch_compat
from .backends import registry
from .cache.keep import Texts, entry_texts, keep, part_of
from .cache.roots import Root, root_for
from .capture.run import Stopped
from .capture.run import run as capture_run
from .compilation.recompiles import because, declared_error, refuse_numbers, size_advice
from .compilation.reporting import report_values
from .compilation.timing import Timeline, compiling
from .errors import BackendError, CompileError, DeclaredSizeError, GraphBreakError
from .graph_pipeline import compiling_graph, prepare
from .inspector import progress, show
from .lazy_specialization import by_sizes
from .process import fallbacks
from .records.breaks import GraphBreak
from .records.capture import Capture, Request
from .records.compilation import EntryRecord, Fallback, GraphRecord, Recompile
from .records.declared_sizes import DeclaredSizes
from .records.guards import Guard
from .records.kept_graph import NotKept
from .records.origin import UNKNOWN
from .records.size_environment import DecidedByData
from .records.size_sources import size_guards
from .records.sources import Source, is_tensor_size
from .records.symbolic_ints import SizesUnfit
from .runtime import edit_errors
from .runtime import guards as guard_runtime
from .runtime.entry_load import load_entry
from .runtime.equal_guards import with_those_of
from .runtime.guards import Failure
from .runtime.reconstruct import Undone
from .runtime.store import Folder

if TYPE_CHECKING:
    from .pipeline import FunctionState
    from .runtime.callee_compilation import Entry

log = logging.getLogger("torchglass")


class AroundGraph(NamedTuple):
    """What an entry needs beside its graph."""

    conditions: tuple[Guard, ...]
    table: _native.GuardTable
    guards: guard_runtime.GuardText
    resumes: dict[str, Any]
    texts: Texts | NotKept | None  # to keep


def new_entry(
    state: FunctionState, compiled: _native.CompiledFunction, arguments: tuple[Any, ...], declared: DeclaredSizes
) -> Entry | None:
    """An entry for these arguments, added to ``compiled``, and what its guards fetched; None to run the function."""
    return EntryPipeline(state, compiled, declared).entry_for(arguments)


class EntryPipeline:
    """One missed call of a function on its way to an entry."""

    def __init__(self, state: FunctionState, compiled: _native.CompiledFunction, declared: DeclaredSizes) -> None:
        self.state, self.compiled, self.declared = state, compiled, declared
        self.name, self.function, self.options = state.name, state.function, state.options
        self.guards = state.guards  # of all entries, in order
        self.unfit = "", UNKNOWN, False  # why the last attempt could not leave sizes open, where, whether for its sizes
        self.sized_by_data = False  # whether the last capture had such sizes

    def entry_for(self, arguments: tuple[Any, ...]) -> Entry | None:
        nearest = self._note_recompile(arguments)
        try:
            table, entry = compiling.undisturbed(lambda: self._compile(arguments))
        except (GraphBreakError, CompileError, DeclaredSizeError):
            raise
        except Stopped as stopped:
            self._run_eager_from_now_on(stopped.found)
            return None
        except RecursionError:
            return None  # the program itself is nested so deeply: Python goes on, as far as that goes
        except Exception as error:
            self._failed(error)
            return None
        self._log_entry(nearest, arguments)
        fetched = table.check(arguments)
        if fetched is None:
            self._guards_do_not_hold(arguments)
            return None
        return entry, fetched

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
            if source in self.state.fixed or (self.options.dynamic is False and is_tensor_size(source)):
                continue
            self.state.changes[source] = self.state.changes.get(source, 0) + 1
        told = [Recompile(f.guard, *report_values(f.old, f.new), index) for index, f in failures]
        self.state.record.recompiles.append(replace(told[0], others=tuple(told[1:])))
        return failures[0][1]

    def _log_entry(self, nearest: Failure | None, arguments: tuple[Any, ...]) -> None:
        """Say that there is an entry more, and what has become of the sizes for which it was made."""
        entry, why = self.state.record.entries[-1], ""
        if nearest is not None:
            scope = guard_runtime.scope_of(self.function, arguments)
            foreign = "" if registry.resolve(self.options.backend).foreign is None else "its backend is given numbers"
            why_not = "dynamic=False says so" if self.options.dynamic is False else foreign
            advice = size_advice(nearest.guard, scope, self.state.fixed, self.guards[-1], why_not)
            self.state.record.recompiles[-1] = replace(self.state.record.recompiles[-1], advice=advice)
            why = f" again, since {nearest.message} ({nearest.guard.origin}){advice and f'; {advice}'}"
        kernels = sum(len(graph.kernels) for graph in entry.graphs)
        log.info(
            "`%s` (%s) is compiled%s: entry %d, %s, %s, %s",
            self.name,
            self.state.record.origin,
            why,
            entry.index,
            show.count(len(entry.graphs), "graph"),
            show.count(kernels, "kernel"),
            show.seconds(sum(entry.seconds_by_stage.values())),
        )

    def _run_eager_from_now_on(self, found: GraphBreak) -> None:
        if self.options.fullgraph and not found.raises:
            raise GraphBreakError(self.name, found) from None
        self.state.record.fallbacks.append(Fallback(found.reason, found.origin, "capture"))
        if not found.raises:
            self.compiled.disabled = True
            self.compiled.region = self.state.callees.region
            self.state.callees.region.skip(self.function.__code__)
            log.info("`%s` runs eagerly: %s, at %s", self.name, found.reason, found.origin)

    def _failed(self, error: Exception) -> None:
        where = getattr(error, "torchglass_origin", None) or self.state.record.origin
        if self.options.fullgraph:
            raise CompileError(
                f"compiling `{self.name}` failed at {where}: {error} (see {self.state.folder.path})"
            ) from error
        self.state.record.fallbacks.append(Fallback(f"{type(error).__name__}: {error}", where, "compiler"))
        self.compiled.disabled = True
        log.debug("compiling %s failed", self.name, exc_info=error)
        message = f"torchglass could not compile `{self.name}` and runs it eagerly: {edit_errors.told(error)}"
        if isinstance(error, BackendError):
            message = f"`{self.name}` runs eagerly, since {error}"
        fallbacks.say(message, where, f"artifacts in {self.state.folder.path}")
        self.state.write_reports()

    def _guards_do_not_hold(self, arguments: tuple[Any, ...]) -> None:
        failure = guard_runtime.explain_failure(self.guards[-1], guard_runtime.scope_of(self.function, arguments))
        message = f"the guards of a new entry of `{self.name}` do not hold for the call it was made for: {failure}"
        fallbacks.say(message, self.state.record.origin)

    # --- compiling -------------------------------------------------------------------------------------------------
    def _compile(self, arguments: tuple[Any, ...]) -> tuple[Any, Callable[..., Any]]:
        known = len(self.guards)
        try:
            with progress.compiling(self.name):
                for request, refusal in self._requests(arguments):
                    before = torch_compat.ThreadState()
                    try:
                        return self._compile_in(Timeline(self.name), request, refusal)
                    except (SizesUnfit, Exception) as error:
                        self._learn(request, error)
                        del self.guards[known:], self.state.record.entries[known:]
                        log.info("`%s` is compiled for more of its sizes as they are: %s", self.name, error)
                        log.debug("compiling %s for changing sizes failed", self.name, exc_info=error)
                        before.restore_after(error)
                raise AssertionError("a request without sizes that change comes last")
        except BaseException:  # perhaps from outside, and between two of these lists
            del self.guards[known:], self.state.record.entries[known:]
            raise

    def _learn(self, request: Request, error: BaseException) -> None:
        """What a failed attempt says of the next one; raises the error if there is none that can do better."""
        by_data = self.sized_by_data or isinstance(error, DecidedByData) or getattr(error, "by_data", False)
        if by_data and request.data_sizes and not isinstance(error, GraphBreakError):
            self.state.data_sizes = False
            self.state.asked_of_data = str(error), getattr(error, "torchglass_origin", UNKNOWN)
        elif not request.symbolic or isinstance(error, DeclaredSizeError):
            raise error
        where = getattr(error, "torchglass_origin", UNKNOWN)
        self.unfit = str(error), where, isinstance(error, SizesUnfit)

    def _requests(self, arguments: tuple[Any, ...]) -> Iterator[tuple[Request, DeclaredSizeError | None]]:
        """Requests to try in turn, without sizes that data decide from the first one on that these did not fit in."""
        for request, refusal in self._more_and_more_numbers(arguments):
            request = replace(request, data_sizes=request.data_sizes and self.state.data_sizes)
            yield request, refusal
            if request.data_sizes and not self.state.data_sizes:
                yield replace(request, data_sizes=False), refusal

    def _more_and_more_numbers(self, arguments: tuple[Any, ...]) -> Iterator[tuple[Request, DeclaredSizeError | None]]:
        """With all sizes and numbers left open that change, or that the program says will; without sizes of 1, which
        are unlike others; with those alone of which the program says so; without any, which is so from then on, and
        an error if it must not be: it may be that the program raises one of its own.
        """
        request, refusal, declared = self._request(arguments), None, self.declared
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
            self.state.fix(sizes - single - strict.keys(), *self.unfit[:2])
            yield replace(request, changes=_without(request.changes, sizes), symbolic=False), refusal

    def _compile_in(
        self,
        timeline: Timeline,
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
            if not request.data_sizes and not self.state.data_sizes:
                asked = because(*self.state.asked_of_data)
                found = replace(found, reason=f"{found.reason} (sizes that data decide do not fit here: {asked})")
            raise GraphBreakError(self.name, found)
        index = len(self.guards)
        if index:
            capture = replace(capture, guards=with_those_of(self.guards[-1], capture.guards))
        folder = self.state.folder.child(f"entry_{index}")
        names: dict[str, Any] = {**capture.namespace, "compiled_calls": self.state.callees.region}
        graphs: tuple[GraphRecord, ...] = ()
        keep_in, kept = root_for(self.options, folder.store), None
        if capture.graph is None:
            conditions, table, guards, resumes, texts = self._around_the_graph(timeline, capture, folder, keep_in)
        else:
            examples, fakes, root = capture.example_inputs, capture.fake_inputs, self.state.root().record
            inner = folder.child("graph_0")
            with compiling_graph(capture.graph, examples, self.options, inner, fakes, root, Undone) as graph:
                conditions, table, guards, resumes, texts = self._around_the_graph(timeline, capture, folder, keep_in)
                compilation = graph.finish()
                names["graph_0"] = by_sizes(compilation, graph, capture.graph, fakes)
                kept = part_of(keep_in, lambda _: graph.kept())
            graphs = (compilation.record,)
        names |= resumes
        with timeline.stage("guards"):
            artifact = folder.write("transformed.py", capture.transformed)
            entry = load_entry(artifact, names, capture.written_inputs, capture.may_fail)
        self.guards.append(conditions)
        refuse_numbers(self.name, capture, capture.sizes.fixed())
        for source, assumption in capture.sizes.used().items():
            self.state.fix([source], assumption.why, assumption.origin)
        keeping = keep(keep_in, self.function, self.options, self.declared, texts, capture.graph, kept)
        if capture.graph is not None:
            graph.entry.path = keeping.path
        record = EntryRecord(
            index,
            conditions,
            guards.text,
            artifact.text,
            graphs,
            capture.breaks,
            timeline.events,
            resume_of=self.state.parent.name if self.state.parent is not None else None,
            names=capture.namespace,
            expected=guards.expected,
            keeping=keeping,
        )
        self.state.record.entries.append(record)
        self.state.write_reports()
        self.compiled.add_entry(table, entry)
        return table, entry

    def _around_the_graph(
        self, timeline: Timeline, capture: Capture, folder: Folder, keep_in: Root | None
    ) -> AroundGraph:
        resumes = {resume.name: self.state.continuation(resume) for resume in capture.resumes}
        with timeline.stage("guards"):
            conditions = (*capture.guards, *size_guards(capture.sizes))  # the stages have assumed all that they do
            table = guard_runtime.build_table(conditions, capture.fetch, self.function)
            parameters = guard_runtime.parameter_names(self.function)
            guards = guard_runtime.write(conditions, capture.fetch, parameters, self.function.__globals__)
            folder.write("guards.py", guards.text, "read")
            texts = part_of(keep_in, lambda root: entry_texts(self.function, capture, conditions, root.asked))
        return AroundGraph(conditions, table, guards, resumes, texts)

    def _request(self, arguments: tuple[Any, ...]) -> Request:
        state, options = self.state, self.options
        everything = options.dynamic is True
        said = {source: 1 for source, one in self.declared.items() if one.changes and source not in state.fixed}
        static = {source for source, one in self.declared.items() if not one.changes}
        changes = said | _without(state.changes, static)
        ours = registry.resolve(options.backend).foreign is None
        symbolic = (bool(changes) or everything) and ours and options.dynamic is not False
        names = state.continued.resume_names
        asked = state.function, arguments, state.name, names, changes, options.fullgraph, state.varying
        return Request(*asked, symbolic, symbolic and everything, ours and state.data_sizes, self.declared)


def _without(changes: dict[Source, int], sources: Collection[Source]) -> dict[Source, int]:
    return {source: count for source, count in changes.items() if source not in sources}
