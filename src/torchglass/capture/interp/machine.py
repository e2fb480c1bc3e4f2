"""The capture of one call: values, graph, guards, effects, and the frames being interpreted.

The machine owns what one capture accumulates and offers opcode handlers and values a small vocabulary: wrap, guard,
call, throw, truth, ... What calling something means is in ``calls``, what a tensor operation means in ``tensor_ops``.
"""

from __future__ import annotations

import functools
import operator
import os
import sys
import sysconfig
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any, NoReturn, TypeVar, cast

import torch

from ... import torch_compat
from ...bytecode.objects import namesake
from ...operators.traced_arrays import NotTraced
from ...records.guards import Guard
from ...records.origin import UNKNOWN, Origin
from ...records.sources import Attr, Source, TypeOf
from ..errors import StaysInPython, Unsupported, UserError
from ..guarding import class_guards as relied
from ..guarding import no_alias_guards as told_apart
from ..guarding import wrap
from ..meanings import calls, operators
from ..meanings import class_statement as class_bodies
from ..polyfills import NAMED
from ..torch_api import constant_folding as constant_tensors
from ..torch_api import graph_builder as graph
from ..torch_api import operations as tensor_ops
from ..torch_api import torch_function as function_modes
from ..values import hashing
from ..values import symbolic_strings as texts
from ..values.arrays import is_array
from ..values.base import Lazy, NotConstant, Value
from ..values.binding import MISSING, bind, is_of_compiled_module
from ..values.constant import ConstantV
from ..values.containers import CellV, SequenceV, SliceV, TupleV
from ..values.dicts import DictV
from ..values.effects_log import EffectsLog
from ..values.functions import FunctionV
from ..values.instance import ExceptionV, InstanceV
from ..values.iterators import WaitingGenerators
from ..values.known import KnownV
from ..values.number import NumberV
from ..values.opaque import is_opaque
from ..values.overlays import Overlays
from ..values.tensor import TensorV
from .frame import Frame

S = TypeVar("S")
MAX_DEPTH = 150
MOST_IDLE_STEPS = 1_000_000  # without anything for the graph; capturing so many takes seconds, running them a blink
# What stands in for functions written in C.
OURS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "")
NOT_THE_USERS = (OURS, os.path.join(torch.__path__[0], ""), "<")


def _raising(error: Any) -> NoReturn:
    raise error


def _slicing(index: Any) -> Any:
    return [][index:]


class Machine:
    """State of one capture. ``frames[0]`` is the outermost frame."""

    def __init__(
        self,
        function: FunctionType,
        changes: dict[Source, int] | None = None,
        fullgraph: bool = False,
        varying: Collection[str] = (),
    ) -> None:
        self.function = function
        self.changes = changes or {}
        self.varying = varying
        self.fullgraph = fullgraph
        self.builder = graph.GraphBuilder()
        self.frames: list[Frame] = []
        self.guards: dict[tuple[Any, ...], Guard] = {}
        self.wrapped: dict[int, tuple[Any, Value]] = {}
        self.mutated: dict[int, Value] = {}
        self.overlays = Overlays(function)
        self.keys: dict[int, Value] = {}  # objects of before the call that were keys or members
        self.modes = torch_compat.Modes()
        self.function_modes: list[InstanceV] = []  # entered inside, innermost last
        self.class_sources: dict[type, Source] = {}
        self.kept: list[Any] = []
        self.settling: set[int] = set()
        self.sealed_by = ""
        self.leaves_break = False  # whether what must not leave the graph ends it: see LeafLeaves
        self.effects = EffectsLog()
        self.checks_break = False  # whether a tensor is looked at before the program goes on
        self.generators = WaitingGenerators()
        self.states: dict[type, Any] = {}  # what features keep of one capture, by the class of it: see ``state``
        self.steps, self.patience, self.nodes_seen = 0, MOST_IDLE_STEPS, 0

    def forget(self) -> None:
        """Let go of the call's objects at the end: values refer to the machine, and it to them."""
        vars(self).clear()

    def state(self, kind: type[S]) -> S:
        """What a feature keeps of this capture: one object of its class, made when first asked for."""
        found = self.states.get(kind)
        if found is None:
            found = self.states[kind] = kind()
        return cast(S, found)

    # --- where we are ----------------------------------------------------------------------------------------------
    def origin(self) -> Origin:
        """The innermost line of the user's; PyTorch's if there is none, and ours for want of both."""
        inward = self.frames[::-1]
        for others in (NOT_THE_USERS, OURS, ()):
            for frame in inward:
                if not frame.code.co_filename.startswith(others):
                    return frame.origin()
        return UNKNOWN

    def stack_trace(self) -> str:
        """The frames in the form of a traceback, which ``print_readable`` shows."""
        import linecache

        lines = []
        for frame in self.frames:
            at = frame.origin()
            text = linecache.getline(at.file, at.line).strip()
            lines.append(f'  File "{at.file}", line {at.line}, in {at.function}\n    {text}\n')
        return "".join(lines)

    def count_step(self) -> None:
        """Give up on a frame that goes on and on without a tensor operation: its loop, too, is unrolled."""
        self.steps += 1
        if self.steps < self.patience:
            return
        nodes = len(self.builder.graph.nodes)
        self.patience = self.steps + MOST_IDLE_STEPS
        if nodes == self.nodes_seen:
            raise StaysInPython(f"over {MOST_IDLE_STEPS:,} instructions without a tensor operation")
        self.nodes_seen = nodes

    # --- guards ----------------------------------------------------------------------------------------------------
    def guard(self, source: Source, check: str, expected: Any, why: str) -> None:
        """Note that the entry relies on ``source``; the same condition is noted once."""
        key = _guard_key(source, check, expected)
        if key not in self.guards:
            self.guards[key] = Guard(source, check, expected, why, self.origin())

    def guarded(self, source: Source, check: str, expected: Any) -> bool:
        """Whether the entry relies on this already."""
        return _guard_key(source, check, expected) in self.guards

    def guard_lacks_attr(self, real: Any, source: Source | None, name: str) -> None:
        """Note that ``real`` was asked for an attribute in vain; one that got it inside has none to guard."""
        if source is not None and not hasattr(real, name):
            self.guard(source, "lacks_attr", name, f"asked for attribute `{name}`")

    def class_lookup(self, cls: type, name: str) -> Any:
        """What stands under a name in a class or its bases, which the entry relies on from here on."""
        return relied.look_up(self, cls, name)

    def may_change(self, cls: type) -> bool:
        """Whether a class is the program's, which may give it other attributes."""
        return relied.may_change(self, cls)

    def rely_on_bases(self, cls: type) -> None:
        relied.rely_on_bases(self, cls)

    def is_data_descriptor(self, attribute: Any) -> bool:
        kind = type(attribute)
        return any(relied.look_up(self, kind, name) is not MISSING for name in ("__set__", "__delete__"))

    # --- values ----------------------------------------------------------------------------------------------------
    def wrap(self, real: Any, source: Source | None, owner: Any = None) -> Value:
        return wrap.wrap(self, real, source)

    def wrap_known(self, real: Any, source: Source | None = None) -> Value:
        return wrap.wrap(self, real, source)

    def function_on_class(self, real: FunctionType, source: Source | None) -> Value:
        """A function found on a class that is guarded already; the symbolic one where ``real`` stands for such."""
        known = self.wrapped.get(id(real))
        return known[1] if known is not None and isinstance(known[1], FunctionV) else KnownV(real, source)

    def stand_in(self, value: Value) -> Any:
        return class_bodies.stand_in(self, value)

    def wrap_result(self, real: Any, owner: Value | None = None) -> Value:
        return wrap.wrap_result(self, real)

    def constant(self, value: Any) -> Value:
        return wrap.wrap_result(self, value)

    def force(self, lazy: Lazy) -> Value:
        return self.wrap(lazy.real, lazy.source)

    def forced(self, value: Any) -> Value:
        return self.force(value) if isinstance(value, Lazy) else value

    def settle(self, value: Any) -> Value:
        """Read (and so guard) all that lies inside a container, for those who take it as one constant."""
        value = self.forced(value)
        if isinstance(value, (SequenceV, DictV)):
            if id(value) in self.settling:
                raise Unsupported("a structure that contains itself, taken as a constant")
            self.settling.add(id(value))
            try:
                items = value.all(self) if isinstance(value, SequenceV) else [item for _, item in value.pairs(self)]
                for item in items:
                    self.settle(item)
            finally:
                self.settling.discard(id(value))
        assert isinstance(value, Value)
        return value

    def settled_key(self, key: Value) -> Value:
        """A key or set member, with the items of a tuple read."""
        key = self.settle(key) if isinstance(key, TupleV) else key
        hashing.prepare(self, key)
        return key

    def forced_local(self, frame: Frame, name: str, value: Any) -> Value:
        if isinstance(value, Lazy):
            value = frame.locals[name] = self.force(value)
        assert isinstance(value, Value)
        return value

    def listed(self, value: Value) -> list[Value]:
        """All items of an iterable."""
        if isinstance(value, SequenceV) and not isinstance(value, InstanceV):
            return value.all(self)
        iterator = self.iterate(value)
        items: list[Value] = []
        while (item := iterator.next(self)) is not None:
            items.append(self.forced(item))
            if len(items) > 1_000_000:
                raise Unsupported("an iteration of over a million steps")
        return items

    def mapping_pairs(self, value: Value) -> list[tuple[Value, Value]]:
        """Keys and values of a mapping, as ``**mapping`` reads them."""
        if isinstance(value, InstanceV) and isinstance(value.payload, DictV) and value.method(self, "keys") is not None:
            custom = self.class_lookup(value.cls, "keys")
            if type(custom) is not FunctionType:
                value = value.payload
        if isinstance(value, DictV):
            return value.pairs(self)
        keys = self.listed(self.call(self.get_attr(value, "keys"), [], {}))
        return [(k, value.get_item(self, k)) for k in keys]

    # --- Python protocols ------------------------------------------------------------------------------------------
    def get_attr(self, owner: Value, name: str) -> Value:
        return self.forced(owner.get_attr(self, name))

    def class_attr(self, owner: Value, name: str) -> Value:
        """An attribute found on the class of a builtin kind of value."""
        cls = owner.python_type()
        if name == "__class__":
            return self.wrap_known(cls)
        return bind(self, self.class_lookup(cls, name), owner, cls, name)

    def class_attr_source(self, owner: Value, cls: type, name: str) -> Source | None:
        """How to reach a class's attribute: through the class or the first instance seen, since all are guarded."""
        place = self.class_source(owner, cls)
        return Attr(place, name) if place is not None else None

    def class_source(self, owner: Value, cls: type) -> Source | None:
        """How to reach the class of ``owner``; None for one that is taken as it is, or was made inside."""
        if self.is_stable(cls.__module__) and not is_of_compiled_module(cls):
            return None
        if owner.source is not None:
            return self.class_sources.setdefault(cls, TypeOf(owner.source))
        return self.class_sources.get(cls)

    def iterate(self, value: Value) -> Value:
        return value.iterate(self)

    def truth(self, value: Value) -> bool:
        return value.truth(self)

    def contains(self, container: Value, item: Value) -> bool:
        if isinstance(container, TensorV):
            raise Unsupported("`in` on a tensor")
        return container.contains(self, self.settled_key(item))

    def as_index(self, key: Value, user: Callable[[Any], Any] = operator.index) -> Any:
        """An int or a slice of ints, for list and tuple; ``user``, which takes one, words the error."""
        given = key.special(self, "__index__") if isinstance(key, InstanceV) else None
        if given is not None:
            key = given
        elif isinstance(key, SliceV):
            none = [isinstance(part, ConstantV) and part.value is None for part in key.parts]
            return slice(*(None if no else self.as_index(part, _slicing) for no, part in zip(none, key.parts)))
        if isinstance(key, TensorV):
            known = constant_tensors.value_of(self, key)
            if known is None:
                raise Unsupported("a tensor as index of a list")
            return self.real(operator.index, known)
        cls = key.python_type()
        if cls is not slice and self.class_lookup(cls, "__index__") is MISSING:
            self.throw_as(user, namesake(cls))
        try:
            constant = key.as_constant()
        except NotConstant:
            raise Unsupported(f"{key.a()} as index of a list") from None
        if isinstance(constant, slice):
            return constant
        return self.real(operator.index, constant)

    def identical(self, left: Value, right: Value) -> bool:
        """``left is right``."""
        if left is right:
            return True
        if (isinstance(left, NumberV) or isinstance(right, NumberV)) and left.python_type() is not right.python_type():
            return False
        left_real, right_real = _identity(left), _identity(right)
        if left_real is None or right_real is None:
            return False
        if left_real[0] is not right_real[0]:
            told_apart.guard_distinct(self, [left, right], "they were told apart with `is`")
            return False
        return True

    def equal(self, left: Value, right: Value) -> bool:
        """``left == right`` as a Python bool (as list.__contains__ and tuple comparison use it)."""
        return self.identical(left, right) or self.truth(self.binary(operator.eq, left, right))

    def binary(self, function: Callable[..., Any], left: Value, right: Value) -> Value:
        return operators.binary(self, function, left, right)

    def unary(self, function: Callable[..., Any], value: Value) -> Value:
        return operators.unary(self, function, value)

    def format(self, value: Value, conversion: Any, spec: Value) -> Value:
        """One replacement field of an f-string."""
        text = self.call(self.wrap_known(conversion), [value], {}) if conversion else value
        if isinstance(text, TensorV):
            raise Unsupported("formatting a tensor", "print tensors outside the compiled function")
        if isinstance(text, InstanceV):
            given = text.special(self, "__format__", spec)
            if given is not None:
                return given
        changing = texts.formatted(self, text, spec)
        if changing is not None:
            return changing
        if isinstance(text, ConstantV) and spec.is_constant():
            return ConstantV(self.real(format, text.value, spec.as_constant()))
        if spec.is_constant() and spec.as_constant() == "":
            return self.call(self.wrap_known(str), [text], {})
        raise Unsupported(f"formatting {value.a()}")

    # --- running real code -----------------------------------------------------------------------------------------
    def real(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call real Python on real objects; what it raises is the user's exception."""
        try:
            return function(*args, **kwargs)
        except (Unsupported, UserError):
            raise
        except NotTraced as error:
            raise Unsupported(str(error), "move it out of the compiled function") from None
        except Exception as error:
            self.raise_real(error)

    def raise_real(self, error: Exception) -> NoReturn:
        """Raise in the program what real code raised; the entry keeps it, and must not keep the capture's frames."""
        link: BaseException | None = error
        while link is not None and link.__traceback__ is not None:
            link = link.with_traceback(None).__context__
        value = ExceptionV(type(error), [self.wrap_result(a) for a in error.args], error)
        raise UserError(value) from None

    def raise_over(self, error: Exception, cause: Value) -> NoReturn:
        """``raise error from cause``."""
        value = ExceptionV(type(error), [self.wrap_result(a) for a in error.args], error)
        value.slots |= {"__cause__": cause, "__context__": cause, "__suppress_context__": ConstantV(True)}
        raise UserError(value) from None

    def fold(self, function: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Call a pure function on constants."""
        try:
            real_args = [self.settle(a).as_constant() for a in args]
            real_kwargs = {k: self.settle(v).as_constant() for k, v in kwargs.items()}
        except NotConstant:
            names = ", ".join(a.describe() for a in args)
            raise Unsupported(f"`{getattr(function, '__qualname__', function)}` of {names}") from None
        if any(map(self._is_programs, (*real_args, *real_kwargs.values()))) and calls.calls_arguments(function):
            raise Unsupported(
                f"`{getattr(function, '__qualname__', function)}`, which calls a function of the program's"
            )
        result = self.real(function, *real_args, **real_kwargs)
        if is_opaque(result) and type(result) not in wrap.REBUILT and not is_array(result):
            # it would be made once, at capture, and be used up or changed by the first call
            raise Unsupported(f"`{getattr(function, '__qualname__', function)}`, which makes a {type(result).__name__}")
        made = _containers(result)
        if made and not made.isdisjoint(_containers((real_args, *real_kwargs.values()))):
            raise Unsupported(f"`{getattr(function, '__qualname__', function)}`, which gives back what it was given")
        return self.wrap_result(result)

    def _is_programs(self, value: Any) -> bool:
        function = getattr(value, "__func__", value)
        return type(function) is FunctionType and not self.is_stable(function.__globals__.get("__name__"))

    def throw(self, cls: type[BaseException], *args: Any) -> NoReturn:
        """Raise an exception in the user's program."""
        raise UserError(ExceptionV(cls, [a if isinstance(a, Value) else ConstantV(a) for a in args]))

    def throw_as(self, function: Callable[..., Any], /, *args: Any, of: Value | None = None) -> NoReturn:
        """Raise in the program what ``function`` raises for stand-ins: CPython's own words, for which types alone
        matter. An AttributeError is of the object ``of``.
        """
        try:
            function(*args)
        except (Unsupported, UserError):
            raise
        except Exception as error:
            raised = error
        value = ExceptionV(type(raised), [ConstantV(arg) for arg in raised.args])
        if isinstance(raised, AttributeError) and raised.obj is not None and of is not None:
            value.initialized = value.args, {"name": ConstantV(raised.name), "obj": of}
        raise UserError(value)

    def throw_missing(self, owner: Value, name: str) -> NoReturn:
        """Raise the AttributeError of an object without such an attribute."""
        self.throw_as(getattr, namesake(owner.python_type()), name, of=owner)

    def handled(self) -> Value | None:
        """The exception being handled in the innermost frame that handles one (``sys.exc_info``)."""
        return next((error for f in reversed(self.frames) if (error := f.handled()) is not None), None)

    def chain(self, value: Value, anew: bool = False) -> None:
        """Give an exception raised in a handler its context; another one if it is raised ``anew``."""
        handled = self.handled()
        if not isinstance(value, ExceptionV) or value.real is not None or handled is None or handled is value:
            return
        if not anew and "__context__" in value.slots:
            return
        value.slots["__context__"] = handled
        link: Any = handled
        seen: set[int] = set()
        while isinstance(link, ExceptionV) and id(link) not in seen:  # which must not lead back to it
            seen.add(id(link))
            below = link.slots.get("__context__")
            if below is value:
                link.slots["__context__"] = ConstantV(None)
            link = below if below is not value else None

    def exception_from(self, value: Value, user: Callable[[Any], Any] = _raising) -> InstanceV:
        """What ``raise value`` raises: classes are called. ``user``, which takes one, words the error."""
        if isinstance(value, KnownV) and isinstance(value.real, type) and issubclass(value.real, BaseException):
            cls, value = value.real, self.call(value, [], {})
            if not issubclass(value.python_type(), BaseException):
                kind = value.python_type()
                text = f"calling {cls} should have returned an instance of BaseException, not {kind}"
                self.throw(TypeError, text)
        if not isinstance(value, InstanceV) or not issubclass(value.cls, BaseException):
            self.throw_as(user, namesake(value.python_type()))
        return value

    def is_subclass(self, cls: type, wanted: Value) -> bool:
        """``issubclass(cls, wanted)`` where wanted is a class or a tuple of classes."""
        if isinstance(wanted, TupleV):
            return any(self.is_subclass(cls, w) for w in wanted.all(self))
        self.rely_on_bases(cls)
        real = self.as_class(wanted)
        found = bool(self.real(issubclass, cls, real))
        if isinstance(real, type) and type(real) is not type:
            relied.rely_on_kind(self, None, cls, real, found)
        return found

    def as_class(self, wanted: Value) -> Any:
        """A class, or an object that answers for some (``typing.List``)."""
        real = wanted.real if isinstance(wanted, InstanceV) else None
        return wanted.as_constant() if real is None else real

    # --- calls -----------------------------------------------------------------------------------------------------
    def call(self, function: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.forced(self.forced(function).call(self, args, kwargs))

    def call_known(self, function: KnownV, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return calls.call_known(self, function, args, kwargs)

    def call_descriptor(self, descriptor: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return calls.call_descriptor(self, descriptor, args, kwargs)

    def call_transformed(self, transform: Any, function: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return calls.transforms.call_transformed(self, transform, function, args, kwargs)

    def cells_of(self, function: KnownV) -> dict[str, CellV]:
        real = function.real
        return dict(zip(real.__code__.co_freevars, calls.closure_of(self, real, calls.source_of(self, function))))

    def made_item(self, owner: Value, key: Value) -> Value:
        """``owner[key]`` with classes that were made inside: ``list[Local]``, ``Local[int]``."""
        return class_bodies.make(self, operator.getitem, [owner, key], {})

    def call_module(self, module: InstanceV, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return calls.call_module(self, module, args, kwargs)

    def inline(self, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return calls.inline(self, function, args, kwargs)

    def polyfill(self, name: str) -> Value:
        return self.wrap_known(NAMED[name])

    def constant_tensor(self, tensor: TensorV) -> Any:
        return constant_tensors.value_of(self, tensor)

    def torch_call(self, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return tensor_ops.call_function(self, function, args, kwargs)

    def torch_method(self, owner: Value, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return tensor_ops.call_method(self, owner, name, args, kwargs)

    def run_frame(self, frame: Frame) -> tuple[str, Value]:
        if len(self.frames) > MAX_DEPTH:
            raise Unsupported(f"calls nested over {MAX_DEPTH} deep")
        try:
            return frame.run(self)
        except (Unsupported, UserError) as error:
            if isinstance(error, UserError):
                frame.stack.clear()
                self.kept.append(frame)  # a traceback leads to its variables
                if isinstance(error.value, ExceptionV):
                    error.value.trace = object()
            # messages name the innermost line of the user's, not the call it happened in
            if isinstance(error, Unsupported) and error.origin is None:
                self.frames.append(frame)
                error.origin = self.origin()
                self.frames.pop()
            raise

    def resume_generator(self, frame: Frame, value: Value | None) -> tuple[str, Value]:
        """Go on where a generator is suspended; ``value`` is None when an exception was thrown into it."""
        if value is not None and frame.finished is not None and frame.finished[0] == "yield":
            frame.push(value)
        return self.run_frame(frame)

    def dispatched(self, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
        return function_modes.dispatched(self, function, args, kwargs) if self.function_modes else None

    def overridden(self, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
        """What ``function(*args, **kwargs)`` means to objects among its arguments; None where none says so."""
        asked = function_modes.overridden(self, args, kwargs)
        return function_modes.dispatched(self, function, args, kwargs) if asked else None

    # --- effects ---------------------------------------------------------------------------------------------------
    @contextmanager
    def sealed(self, what: str) -> Iterator[None]:
        """``what`` runs at other times or more often than here: it may write to nothing that was there before."""
        before, self.sealed_by = self.sealed_by, what
        try:
            yield
        finally:
            self.sealed_by = before

    def refuse_when_sealed(self) -> None:
        if self.sealed_by:
            raise Unsupported(f"{self.sealed_by}, which writes to an object that was there before the call")

    def mutate(self, value: Value) -> None:
        """Note that an existing object was written to (new ones are rebuilt in their final state anyway)."""
        if getattr(value, "real", None) is not None:
            self.refuse_when_sealed()
            self.mutated.setdefault(id(value), value)

    # --- globals --------------------------------------------------------------------------------------------------
    def is_stable(self, module: str | None) -> bool:
        """Whether a module's functions and classes are taken as they are; what stands for its name may be anything."""
        top = module.partition(".")[0] if isinstance(module, str) else ""
        return top in STABLE_PACKAGES and _is_at_home(top)

    def is_stable_module(self, module: ModuleType) -> bool:
        return self.is_stable(module.__name__)


def _is_at_home(package: str) -> bool:
    """Whether a name of the standard library stands for that and not for a module of the user's."""
    file = getattr(sys.modules.get(package), "__file__", None)
    if file is None or package in ("torch", "torchglass"):
        return True
    return file.startswith(STANDARD_LIBRARY) and "site-packages" not in file


# Modules whose globals are taken as they are: they do not change while a program runs, and guarding every
# ``torch.nn.functional.linear`` would only cost.
STANDARD_LIBRARY = sysconfig.get_path("stdlib")
STABLE_PACKAGES = frozenset({"torch", "torchglass"}) | sys.stdlib_module_names


def _guard_key(source: Source, check: str, expected: Any) -> tuple[Any, ...]:
    try:
        key: tuple[Any, ...] = (source, check, expected, type(expected))
        hash(key)
    except TypeError:
        key = (
            source,
            check,
            id(expected) if check == "identity" else repr(expected),
        )  # which may be the program's code
    return key


@functools.singledispatch
def _identity(value: Value) -> tuple[Any] | None:
    """A one-element tuple with the object that decides ``is``, None for values made inside."""
    real = getattr(value, "real", None)
    return (real,) if real is not None else None


@_identity.register
def _(value: ConstantV) -> tuple[Any]:
    return (value.value,)


def _containers(value: Any) -> set[int]:
    """The mutable containers that a value is made of, by their ids."""
    if isinstance(value, (list, dict, set, deque)):
        items = value.values() if isinstance(value, dict) else value
        return {id(value)}.union(*map(_containers, items))
    return set[int]().union(*map(_containers, value)) if isinstance(value, tuple) else set()
