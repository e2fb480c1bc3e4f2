"""The capture of one call: values, guards, and the frames being interpreted.

The one class that satisfies ``protocol.Machine``, where its verbs are explained. What calling something means is in
``meanings.calls``, what a tensor operation means in ``torch_api.operations``.
"""

from __future__ import annotations

import functools
import operator
import os
import sys
import sysconfig
from collections.abc import Callable, Collection
from types import FunctionType
from typing import Any, NoReturn, TypeVar, cast

import torch

from ... import torch_compat
from ...operators.traced_arrays import NotTraced
from ...records.guards import Guard, guard_key
from ...records.origin import UNKNOWN, Origin
from ...records.sources import Source
from .. import protocol
from ..errors import Unsupported, UserError, forget_frames
from ..graph.builder import GraphBuilder
from ..guarding import class_guards as relied
from ..guarding import no_alias_guards as told_apart
from ..guarding import wrap
from ..meanings import calls, folding, operators
from ..polyfills import NAMED
from ..protocol import Lazy, Value
from ..torch_api import operations as tensor_ops
from ..values import hashing, iterators
from ..values.constant import ConstantV
from ..values.consulted import note_answer
from ..values.containers import SequenceV, TupleV
from ..values.converted_branches import refuse_told_apart
from ..values.dicts import DictV
from ..values.instance import ExceptionV, InstanceV
from ..values.number import NumberV
from ..values.overlays import Overlays
from ..values.sealing import refuse_when_sealed
from ..values.tensor import TensorV
from . import class_body, globals, ops
from . import inline as inlining
from .frame import MOST_IDLE_STEPS

S = TypeVar("S")
DEFINING = (calls, class_body, globals, ops)
"""Imported for what they define that is declared below, and for the handlers that they enter."""

# What stands in for functions written in C.
OURS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "")
NOT_THE_USERS = (OURS, os.path.join(torch.__path__[0], ""), "<")


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
        self.frames: list[protocol.Frame] = []
        self.steps_left = MOST_IDLE_STEPS
        self.dropped: list[protocol.Frame] = []
        self.guards: dict[tuple[Any, ...], Guard] = {}
        self.wrapped: dict[int, tuple[Any, Value]] = {}
        self.mutated: dict[int, Value] = {}
        self.modes = torch_compat.Modes()
        self.class_sources: dict[type, Source] = {}
        self.kept: list[Any] = []
        self.settling: set[int] = set()
        self.states: dict[type, Any] = {Overlays: Overlays(function)}

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

    # --- guards ----------------------------------------------------------------------------------------------------
    def guard(self, source: Source, check: str, expected: Any, why: str) -> None:
        """Note that the entry relies on ``source``; the same condition is noted once."""
        key = guard_key(source, check, expected)
        if key not in self.guards:
            self.guards[key] = Guard(source, check, expected, why, self.origin())

    def class_lookup(self, cls: type, name: str) -> Any:
        """What stands under a name in a class or its bases, which the entry relies on from here on."""
        return relied.look_up(self, cls, name)

    # --- values ----------------------------------------------------------------------------------------------------
    def wrap(self, real: Any, source: Source | None = None) -> Value:
        return wrap.wrap(self, real, source)

    def wrap_result(self, real: Any) -> Value:
        return wrap.wrap_result(self, real)

    def forced(self, value: Any) -> Value:
        return self.wrap(value.real, value.source) if isinstance(value, Lazy) else value

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

    # --- Python protocols ------------------------------------------------------------------------------------------
    def get_attr(self, owner: Value, name: str) -> Value:
        return self.forced(owner.get_attr(self, name))

    def iterate(self, value: Value) -> Value:
        return iterators.ITERATES[type(value)](self, value)

    def truth(self, value: Value) -> bool:
        return value.truth(self)

    def identical(self, left: Value, right: Value) -> bool:
        """``left is right``."""
        if left is right:
            return True
        if (isinstance(left, NumberV) or isinstance(right, NumberV)) and left.python_type() is not right.python_type():
            return False
        refuse_told_apart(self, left, right)
        if isinstance(left, TensorV) and isinstance(right, TensorV):
            self.state(GraphBuilder).refuse_perhaps_one(left, right)
        left_real, right_real = _identity(left), _identity(right)
        if left_real is None or right_real is None:
            return False
        if left_real[0] is not right_real[0]:
            told_apart.guard_distinct(self, [left, right], "they were told apart with `is`")
            return False
        return True

    def equal(self, left: Value, right: Value) -> bool:
        """``left == right`` as a Python bool (as list.__contains__ and tuple comparison use it)."""
        number = isinstance(left, NumberV) or isinstance(right, NumberV)  # whose identity would be its value
        same = left is right if number else self.identical(left, right)
        return same or self.truth(self.binary(operator.eq, left, right))

    def binary(self, function: Callable[..., Any], left: Value, right: Value) -> Value:
        return operators.binary(self, function, left, right)

    def unary(self, function: Callable[..., Any], value: Value) -> Value:
        return operators.unary(self, function, value)

    # --- running real code -----------------------------------------------------------------------------------------
    def real(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call real Python on real objects; what it raises is the user's exception."""
        try:
            result = function(*args, **kwargs)
        except (Unsupported, UserError):
            raise
        except NotTraced as error:
            raise Unsupported(str(error), "move it out of the compiled function") from None
        except Exception as error:
            self.raise_real(error)
        note_answer(self, function, args, kwargs, result)
        return result

    def raise_real(self, error: Exception) -> NoReturn:
        """Raise in the program what real code raised; the entry keeps it."""
        forget_frames(error)
        value = ExceptionV(type(error), [self.wrap_result(a) for a in error.args], error)
        raise UserError(value) from None

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
        forget_frames(raised)
        value = ExceptionV(type(raised), [ConstantV(arg) for arg in raised.args])
        if isinstance(raised, AttributeError) and raised.obj is not None and of is not None:
            value.initialized = value.args, {"name": ConstantV(raised.name), "obj": of}
        raise UserError(value)

    def fold(self, function: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Call a pure function on constants."""
        return folding.fold(self, function, args, kwargs)

    # --- calls -----------------------------------------------------------------------------------------------------
    def call(self, function: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.forced(self.forced(function).call(self, args, kwargs))

    def inline(self, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return inlining.inline(self, function, args, kwargs)

    def polyfill(self, name: str) -> Value:
        return self.wrap(NAMED[name])

    def torch_call(self, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return tensor_ops.call_function(self, function, args, kwargs)

    def torch_method(self, owner: Value, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return tensor_ops.call_method(self, owner, name, args, kwargs)

    # --- effects ---------------------------------------------------------------------------------------------------
    def mutate(self, value: Value) -> None:
        """Note that an existing object was written to (new ones are rebuilt in their final state anyway)."""
        if getattr(value, "real", None) is not None:
            refuse_when_sealed(self)
            self.mutated.setdefault(id(value), value)

    # --- globals --------------------------------------------------------------------------------------------------
    def is_stable(self, module: str | None) -> bool:
        """Whether a module's functions and classes are taken as they are; what stands for its name may be anything."""
        top = module.partition(".")[0] if isinstance(module, str) else ""
        return top in STABLE_PACKAGES and _is_at_home(top)


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


@functools.singledispatch
def _identity(value: Value) -> tuple[Any] | None:
    """A one-element tuple with the object that decides ``is``, None for values made inside."""
    real = getattr(value, "real", None)
    return (real,) if real is not None else None


@_identity.register
def _(value: ConstantV) -> tuple[Any]:
    return (value.value,)
