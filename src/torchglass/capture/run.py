"""The capture stage: a Request in, a Capture out.

    capture = run(Request(function, arguments, "f"), options)

The outermost frame is stepped through; when a step cannot be in the graph the capture starts over with that step
marked, and ends there: graph so far, the step as Python, a call of a resume function. Deterministic re-execution
replaces a snapshot of everything the step may have touched.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_ITERABLE_COROUTINE
from typing import Any

import torch
import torch.fx

from .. import torch_compat
from ..bytecode import parameter_names, protection
from ..options import CompileOptions
from ..records.breaks import GraphBreak, Resume
from ..records.capture import Capture, Request
from ..records.guards import Guard
from ..records.literals import one_line
from ..records.origin import Origin
from ..records.size_environment import DecidedByData, SizeEnvironment
from ..records.sources import STACK, Cell, Local
from ..records.symbolic_ints import SizesUnfit
from .entry import breaks, modes
from .entry.effects import emit_effects
from .entry.emitter import Emitter
from .entry.entered_hooks import plain_within
from .entry.module_text import entry_source
from .entry.number_inputs import written_input
from .entry.resume_call import entry_point, slot_text
from .entry.values import BUILDERS
from .errors import (
    BreaksThisCall,
    CannotResume,
    EntersHooks,
    Fails,
    LeafLeaves,
    NeedsData,
    OutOfOrder,
    RaisesCompiled,
    Restart,
    StaysInPython,
    Unchecked,
    Unsupported,
    UserError,
)
from .graph.builder import GraphBuilder
from .graph.open_layouts import LayoutsMatter
from .guarding import class_guards as relied
from .guarding import no_alias_guards as told_apart
from .interp.frame import Frame
from .interp.machine import Machine
from .meanings import recursion
from .protocol import NULL, Lazy, Value
from .resume_code import EntryPoint, in_original, live_cells, live_locals, resume_code
from .torch_api import deferred_asserts as checked
from .torch_api import fallible_ops as failing
from .torch_api import inference_mode as inference
from .torch_api import numbers_read
from .torch_api.compiler_functions import ToldCompiled
from .torch_api.deferred_asserts import Checks
from .torch_api.op_derivatives import Leaves
from .torch_api.random_ops import must_run
from .values import exceptions
from .values.constant import ConstantV
from .values.consulted import Consulted
from .values.containers import CellV, SequenceV, TupleV
from .values.converted_branches import Conversions, SidesDiffer, refuse_escape
from .values.effects_log import EffectsLog
from .values.iterators import WaitingGenerators
from .values.number import ComputedNumbers, NumberV, is_varying

LESSONS = (LeafLeaves, Unchecked, OutOfOrder, LayoutsMatter, RaisesCompiled, SidesDiffer)
"""What one attempt to capture a call finds out for the next, which begins anew with it."""
RUNS_LATER = {
    CO_GENERATOR: "a generator function",
    CO_COROUTINE | CO_ITERABLE_COROUTINE: "a coroutine function",
    CO_ASYNC_GENERATOR: "an asynchronous generator function",
}


class Stopped(Exception):
    """A frame that cannot be compiled at all: the reason goes to the user, the function runs eager."""

    def __init__(self, found: GraphBreak) -> None:
        super().__init__(found.reason)
        self.found = found


def run(request: Request, options: CompileOptions, global_state: Callable[[], Any]) -> Capture:
    """Capture one call. Raises Stopped when the frame can be neither captured nor broken.

    ``global_state`` gives the comparable state (grad mode, autocast, ...) that every entry is guarded on.
    """
    code = request.function.__code__
    origin = Origin(code.co_filename, code.co_firstlineno, code.co_qualname)
    if any(code.co_flags & flags for flags in RUNS_LATER):
        kind = next(kind for flags, kind in RUNS_LATER.items() if code.co_flags & flags)
        raise Stopped(GraphBreak(f"{kind}, which runs after the call", origin, "compile the functions it calls"))
    state = global_state()
    marked: _Mark | None = None
    learnt: set[type] = set()
    with recursion.raised() as limit:
        while True:
            with _state_kept():
                attempt = _Attempt(request, state, marked)
                attempt.m.state(Leaves).break_here = LeafLeaves in learnt
                attempt.m.state(Checks).break_here = Unchecked in learnt
                attempt.m.state(EffectsLog).breaks = OutOfOrder in learnt
                attempt.m.state(SizeEnvironment).layouts_open = LayoutsMatter not in learnt
                attempt.m.state(ToldCompiled).answer = RaisesCompiled not in learnt
                attempt.m.state(Conversions).off = SidesDiffer in learnt
                attempt.m.states[recursion.RecursionLimit] = limit
                try:
                    return attempt.capture()
                except Restart:
                    marked = attempt.learnt
                    if marked is not None and RaisesCompiled in learnt:  # pieces would hear different things
                        raise Stopped(marked.found) from None
                except SizesUnfit as error:
                    error.by_data = bool(attempt.m.state(SizeEnvironment).by_data)
                    error.torchglass_origin = attempt.m.origin()
                    raise
                except LESSONS as error:
                    if type(error) in learnt:
                        raise Stopped(GraphBreak(str(error), attempt.m.origin(), getattr(error, "hint", ""))) from None
                    marked = None
                    learnt.add(type(error))
                except CannotResume as error:
                    found = (
                        marked.found if marked is not None else GraphBreak(str(error), attempt.m.origin(), error.hint)
                    )
                    reason = f"{found.reason}, and the function cannot be entered again there: {error.reason}"
                    raise Stopped(GraphBreak(reason, found.origin, found.hint, found.raises)) from None
                except (RecursionError, MemoryError) as error:
                    reason = f"capturing it needs more than this machine has ({type(error).__name__})"
                    raise Stopped(GraphBreak(reason, origin, ANY_HINT)) from None
                finally:
                    inference.left_for_real(attempt.m)
                    attempt.m.state(SizeEnvironment).release()
                    vars(attempt.m).clear()  # numbers and unread lists keep the machine, which keeps them


@contextmanager
def _state_kept() -> Iterator[None]:
    """Modes as they were, whatever the interpreted program did to them.

    All of the thread's state: an exception's frames may hold guards of C++, which restore what they found when the
    exception is freed, long after what they found was left.
    """
    before = torch_compat.ThreadState()
    try:
        with torch_compat.modes_kept():
            yield
    finally:
        before.restore()


ANY_HINT = "do this outside the compiled function"
"""What to do about a break of which nothing more is known."""


@dataclass(frozen=True)
class _Mark:
    """The step of the outermost frame at which the graph breaks, and guards that this is so."""

    step: int
    found: GraphBreak
    guards: dict[tuple[Any, ...], Guard] = field(default_factory=dict)
    enters_hooks: bool = False


class _Attempt:
    """One pass over the function, up to its return or to the marked step."""

    def __init__(self, request: Request, state: Any, marked: _Mark | None) -> None:
        self.request = request
        self.state = state
        self.marked = marked
        self.learnt: _Mark | None = None
        self.m = Machine(request.function, request.changes, request.fullgraph, request.varying)  # type: ignore[arg-type]
        sizes = self.m.state(SizeEnvironment)
        sizes.origin, sizes.allowed, sizes.all_arguments = self.m.origin, request.symbolic, request.all_symbolic
        sizes.data_allowed = request.data_sizes
        sizes.declared = request.declared
        if sizes.allowed:
            self.m.state(GraphBuilder).leave_sizes_open(sizes)
        self.m.guards.update(marked.guards if marked is not None else {})
        self.code = request.function.__code__
        self.parameters = parameter_names(self.code)
        self.emitter = Emitter(self.m, self.parameters, BUILDERS)
        self.resumes: list[Resume] = []

    def capture(self) -> Capture:
        frame = self._outermost()
        self.m.frames.append(frame)
        while frame.finished is None:
            if self.marked is not None and frame.steps == self.marked.step:
                return self._break(frame)
            try:
                self._step(frame)
            except (Unsupported, UserError) as error:
                if isinstance(error, StaysInPython) and self.m.frames == [frame]:
                    raise Stopped(self._describe(error)) from None  # in a frame that it calls, that one stays
                told = self.m.state(ToldCompiled)
                if isinstance(error, (UserError, Fails)) and told.asked and told.answer:
                    raise RaisesCompiled from None
                if self.marked is not None:
                    raise
                # what is raised in the end was perhaps raised earlier, and handlers ran: Python begins there
                first = frame.raised.get(id(error.value)) if isinstance(error, UserError) else None
                step = first[1] if first is not None else frame.steps - 1
                guards = self.m.guards if isinstance(error, BreaksThisCall) else {}
                self.learnt = _Mark(step, self._describe(error), guards, isinstance(error, EntersHooks))
                raise Restart from None
        try:
            return self._return(frame.finished[1])
        except Unsupported as error:
            if isinstance(error, CannotResume):
                raise
            raise CannotResume(error.reason, error.hint) from None

    def _step(self, frame: Frame) -> None:
        try:
            frame.step(self.m)
            if frame.finished is not None:
                frame.leave(self.m)
        except DecidedByData as error:
            raise NeedsData(f"{error}, which the data of a tensor decide", ANY_HINT) from None

    def _outermost(self) -> Frame:
        arguments: dict[str, Any] = {
            name: Lazy(real, Local(name)) for name, real in zip(self.parameters, self.request.arguments)
        }
        frame = Frame(self.code, self.request.function.__globals__, "", arguments, [])
        frame.cells = dict(zip(self.code.co_freevars, _own_cells(self.m, self.request.function)))
        return frame

    def _describe(self, error: Unsupported | UserError) -> GraphBreak:
        origin = getattr(error, "origin", None) or self.m.origin()
        if isinstance(error, UserError):
            return GraphBreak(f"the program raises {error.value.python_type().__name__}", origin, "", raises=True)
        raises = isinstance(error, Fails)
        return GraphBreak(error.reason, origin, error.hint or ("" if raises else ANY_HINT), raises)

    # --- the two ends ----------------------------------------------------------------------------------------------
    def _return(self, value: Value) -> Capture:
        e = self.emitter
        result = e.expr(value)
        emit_effects(e)
        modes.push(e)
        e.line(f"return {e.written_out(result) if isinstance(value, TupleV) else result}")
        return self._finish(())

    def _break(self, frame: Frame) -> Capture:
        assert self.marked is not None
        found = self.marked.found
        instruction = frame.instructions[frame.pc]
        handler = protection(self.code, instruction.index)
        e = self.emitter
        frame.pc += 1  # origins point at the breaking instruction
        live = self._locals(frame, instruction.index)
        e.prefer(live)
        values = {name: e.expr(value) for name, value in live.items()}
        for slot in frame.stack:
            if slot is not NULL:
                slot_text(e, slot)
        for generator in self.m.state(WaitingGenerators).alive():
            e.expr(generator)  # what it leaves open runs when the entry returns, also if nothing asks it again
        emit_effects(e)
        modes.push(e)
        e.line(f"# graph break at {found.origin}: {one_line(found.reason)}")
        if found.raises:
            path = breaks.Path(None, list(frame.stack), breaks.call_start(frame, instruction), "raise")
            self._leave(self._resume_call(frame, path, values, live), frame.stack)
            return self._finish((found,))
        begin = len(e.body)
        paths = breaks.write_break(e, frame, instruction)
        if self.marked.enters_hooks:
            paths = plain_within(e, paths, begin)
        handled = exceptions.handled(self.m)
        if handled is not None or handler is not None:
            breaks.settle_conditions(e, paths)
        if handled is not None:
            breaks.while_handling(e, handled, begin)
        if handler is not None:
            raised = breaks.catching(e, begin)
            lasti: breaks.Stack = [ConstantV(0)] if handler.lasti else []
            stack: breaks.Stack = [*frame.stack[: handler.depth], *lasti, f"{raised}.pop()"]
            paths = [breaks.Path(raised, stack, handler.target), *paths]
        for path in paths:
            text = self._resume_call(frame, path, values, live)
            if path.condition is None:
                e.line(text)
            else:
                e.line(f"if {path.condition}:")
                e.line(f"    {text}")
        return self._finish((found,))

    def _leave(self, call: str, stack: list[Any]) -> None:
        """A call that raises. Variables that the exception may lie in are cleared: its traceback holds this frame."""
        e = self.emitter
        texts = dict.fromkeys(slot_text(e, slot) for slot in stack if slot is not NULL)
        named = [text for text in texts if any(line.startswith(f"{text} = ") for line in e.body)]
        for line in ["try:", f"    {call}", "finally:", f"    del {', '.join(named)}"] if named else [call]:
            e.line(line)

    def _locals(self, frame: Frame, index: int) -> dict[str, Any]:
        names = live_locals(self.code, index)
        result: dict[str, Any] = {n: v for n, v in frame.locals.items() if n in names}
        for name in self.code.co_cellvars:
            cell = frame.cells.get(name)
            if name in names and cell is not None and cell.real is None and cell.content is not None:
                result[name] = cell.content
        return result

    def _resume_call(self, frame: Frame, path: breaks.Path, values: dict[str, str], held: dict[str, Any]) -> str:
        """The call that goes on along ``path``. ``held`` are the variables' values, ``values`` their texts."""
        e = self.emitter
        live = live_locals(self.code, path.index)
        cells = breaks.shared_cells(e, frame, live_cells(self.code, path.index))
        variables = {n: text for n, text in values.items() if n in live and n not in cells}
        entered, arguments = entry_point(e, self.code, path.index, path.stack, variables, cells)
        _, entry = in_original(self.code, entered)
        line = frame.instructions[path.index].line or self.code.co_firstlineno
        name = self._resume_name(entry, line, path.verb)
        try:
            code = resume_code(self.code, entered, name, path.verb == "raise")
        except ValueError as error:
            raise CannotResume(str(error)) from None
        parameters = parameter_names(code)
        passed = {f"{STACK}{n}": value for n, value in enumerate(path.stack)} | held
        varying = tuple(p for p in parameters if _varies(self.m, passed.get(p)))
        self.resumes.append(Resume(name, entry, code, parameters, line, path.verb != "resume", varying))
        e.used.add(name)
        return f"return {name}({arguments})"

    def _resume_name(self, key: EntryPoint, line: int, verb: str) -> str:
        """The continuation's name: by its line, numbered where a line has several; the same from entry to entry."""
        names = self.request.resume_names
        if (verb, key) not in names:
            taken = set(names.values())
            candidates = (f"{verb}_at_{line}{'' if n == 1 else f'_{n}'}" for n in itertools.count(1))
            names[verb, key] = next(name for name in candidates if name not in taken)
        return names[verb, key]

    def _finish(self, found: tuple[GraphBreak, ...]) -> Capture:
        m, e = self.m, self.emitter
        last = m.origin()
        sizes = m.state(SizeEnvironment)
        sizes.origin = lambda: last
        told_apart.guard_told_apart(m)
        checked.refuse_unfit(m)
        numbers_read.refuse_unfit(m)
        failing.refuse_unfit(m)
        for check in m.state(checked.Checks).waiting:
            e.expr(check.tensor)
        inputs, module = self._graph()
        numbers = m.state(GraphBuilder).numbers if module is not None else []
        for number in m.state(ComputedNumbers).fallible:
            e.expr(number)
        e.number_inputs += [written_input(e, tensor) for tensor in numbers]
        for value in m.state(GraphBuilder).flagged:
            e.expr(value)
        sources = [v.source for v in inputs]
        e_fetch = [s for s in sources if s is not None]
        # the graph's inputs come first in what is fetched: renumber what the body already refers to
        order = e_fetch + [s for s in e.fetch if s not in e_fetch]
        self._renumber(order)
        examples = [v.real.detach().requires_grad_() if v in m.state(GraphBuilder).flagged else v.real for v in inputs]
        code = self.code
        title = f"Entry code of {code.co_qualname} ({code.co_filename}:{code.co_firstlineno})."
        guards = [Guard(None, "global_state", self.state, "the mode it was compiled in")]
        guards += [*m.guards.values(), *relied.guards_on_names(m)]
        return Capture(
            name=self.request.name,
            origin=Origin(code.co_filename, code.co_firstlineno, code.co_qualname),
            graph=module,
            example_inputs=(*examples, *(v.example() for v in numbers)),
            fake_inputs=(*(_as_given(v.fake, real) for v, real in zip(inputs, examples)), *(v.fake for v in numbers)),
            guards=tuple(guards),
            fetch=tuple(order),
            transformed=entry_source(e, len(inputs), module is not None, title),
            namespace=e.namespace,
            resumes=tuple(self.resumes),
            breaks=found,
            grad_enabled=m.modes.grad,
            written_inputs=tuple(n for n, v in enumerate(inputs) if m.state(GraphBuilder).wrote_to(v.fake)),
            may_fail=failing.in_graph(m) or failing.would_lose_effects(m),
            sizes=sizes,
            answers=tuple(m.state(Consulted).answers.values()),
            library_data=m.state(Consulted).data,
        )

    def _renumber(self, order: list[Any]) -> None:
        e = self.emitter
        new = {n: order.index(s) for n, s in enumerate(e.fetch)}
        pattern = re.compile(r"\bfetched\[(\d+)\]")
        for lines in (e.body, e.numbers, e.number_inputs):
            lines[:] = [pattern.sub(lambda found: f"fetched[{new[int(found[1])]}]", text) for text in lines]
        e.names = {k: pattern.sub(lambda found: f"fetched[{new[int(found[1])]}]", text) for k, text in e.names.items()}
        e.fetch = order

    def _graph(self) -> tuple[list[Any], torch.fx.GraphModule | None]:
        """Close the graph over the outputs the entry needs; drop what nothing needs."""
        builder, outputs = self.m.state(GraphBuilder), self.emitter.outputs
        graph = builder.graph
        try:
            builder.refuse_inner_leaves(outputs)
            builder.refuse_freed_histories(outputs)
            builder.refuse_missing_derivatives(outputs)
        except Unsupported as error:
            raise LeafLeaves(error.reason, error.hint) from None
        builder.refuse_open_layouts(outputs)
        refuse_escape(self.m, outputs)
        for guard in reversed(self.m.state(inference.EnteredInference).guards):
            builder.mark_mode(torch_compat.exit_inference_mode, (guard.node,), self.m.origin())
        graph.output(tuple(builder.argument_tensor(v) for v in outputs))
        switches = [n for n in graph.nodes if n.target is torch_compat.set_grad_mode]
        if switches and not self.m.modes.grad:
            # the graph must say in which mode it begins
            with graph.inserting_before(next(n for n in graph.nodes if n.op not in ("placeholder", "get_attr"))):
                graph.call_function(torch_compat.set_grad_mode, (False,)).meta["effect"] = True
        for node in reversed(list(graph.nodes)):
            removable = node.op not in ("output", "placeholder") and not node.meta.get("effect")
            if removable and not node.users and not must_run(node, builder.fake_mode):
                graph.erase_node(node)
        inputs = []
        for value in builder.inputs:
            if value.node.users:
                inputs.append(value)
            else:
                graph.erase_node(value.node)
        for number in builder.numbers:
            if not number.node.users:
                graph.erase_node(number.node)
        builder.numbers = [number for number in builder.numbers if number.node.users]
        builder.tell_sizes(self.m.state(SizeEnvironment), inputs)
        # modes alone need no graph: the entry sets them
        nothing = all(n.op in ("output", "placeholder") or n.target in torch_compat.MODE_CHANGES for n in graph.nodes)
        if nothing and not outputs:
            return [], None
        graph.lint()
        return inputs, torch.fx.GraphModule(builder.root, graph, class_name="captured")


def _varies(m: Machine, value: Value | Lazy | str | None) -> bool:
    """Whether a value handed to a resume function is another one at each call: the result of what broke the graph (a
    text of the entry's), a number that changes, a new container of such.
    """
    if isinstance(value, (Lazy, SequenceV)) and value.source is not None:
        return is_varying(m, value.source)
    if isinstance(value, SequenceV):
        return any(_varies(m, item) for item in value.items)
    return isinstance(value, (str, NumberV))


def _as_given(fake: Any, real: torch.Tensor) -> Any:
    """The fake of an input as the graph finds it: a write within the graph may have made it require a gradient."""
    return fake if fake.requires_grad == real.requires_grad else fake.detach().requires_grad_(real.requires_grad)


def _own_cells(m: Machine, function: Any) -> list[Any]:
    """The cells of the compiled function itself, reached by the names of its free variables."""
    cells = []
    for name, real in zip(function.__code__.co_freevars, function.__closure__ or ()):
        cell = CellV.existing(real, None)
        if isinstance(cell.content, Lazy):
            cell.content = Lazy(cell.content.real, Cell(name))
        m.wrapped[id(real)] = (real, cell)
        cells.append(cell)
    return cells
