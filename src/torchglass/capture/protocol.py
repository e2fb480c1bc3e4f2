"""What capture's files are written against: symbolic values, which the machine puts on its stack instead of real
objects, and the verbs of the machine.

A value answers the Python protocols (attribute, item, call, truth, iteration). The default of each is to break the
graph, so a kind that implements little is safe.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any, Generic, NoReturn, ParamSpec, Protocol, TypeVar

from ..bytecode import Instruction
from ..bytecode.objects import namesake
from ..records.guards import Guard
from ..records.origin import Origin
from ..records.sources import Source
from ..torch_compat import Modes
from .errors import Unsupported, UserError

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
S = TypeVar("S")


class _Missing:
    def __repr__(self) -> str:
        return "<missing>"


MISSING = _Missing()


class NotConstant(Exception):
    """A value has no constant Python object behind it."""


class Value:
    """One symbolic value. ``source`` says how to reach it from the call, None when it was made inside."""

    cls: type  # what ``type()`` would give, of kinds that hold objects of one class
    source: Source | None = None
    walked = False
    asked_by: Any = None  # the machine that asks for its hash, where its class says in Python what is equal

    def python_type(self) -> type:
        """The class ``type()`` would give."""
        return self.cls

    def as_constant(self) -> Any:
        """A real Python object equal to this value; raises NotConstant when tensors or unknown objects are inside."""
        raise NotConstant(self)

    def is_constant(self) -> bool:
        try:
            self.as_constant()
        except NotConstant:
            return False
        return True

    @contextmanager
    def once(self) -> Iterator[None]:
        """Walk into what is inside; raises NotConstant where that is this value again."""
        if self.walked:
            raise NotConstant(self)
        self.walked = True
        try:
            yield
        finally:
            self.walked = False

    def describe(self) -> str:
        """A short phrase for messages: what this is, and where it came from."""
        name = self.source.written() if self.source is not None else ""
        return self.python_type().__name__ + (f" `{name}`" if name else "")

    def a(self) -> str:
        """The same with its article."""
        text = self.describe()
        return f"an {text}" if text[0] in "aeioAEIO" else f"a {text}"

    # --- protocols -------------------------------------------------------------------------------------------------
    def get_attr(self, m: Machine, name: str) -> Value:
        raise Unsupported(f"reading attribute `{name}` of {self.a()}")

    def set_attr(self, m: Machine, name: str, value: Value) -> None:
        cls = self.python_type()
        if cls.__module__ in ("builtins", "collections") and not cls.__dictoffset__ and not hasattr(cls, name):
            m.throw_as(setattr, namesake(cls), name, None, of=self)
        raise Unsupported(f"writing attribute `{name}` of {self.a()}")

    def del_attr(self, m: Machine, name: str) -> None:
        raise Unsupported(f"deleting attribute `{name}` of {self.a()}")

    def call(self, m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        raise Unsupported(f"calling {self.a()}")

    def truth(self, m: Machine) -> bool:
        raise Unsupported(f"the truth of {self.a()}")

    def iterate(self, m: Machine) -> Value:
        """An iterator over this value: something with ``next``. ``iterators.py`` says what those of most kinds are."""
        raise Unsupported(f"iterating over {self.a()}")

    def next(self, m: Machine) -> Value | None:
        """The next item of an iterator, None at its end."""
        raise Unsupported(f"the next item of {self.a()}, whose state is not known here")

    def length(self, m: Machine) -> int:
        raise Unsupported(f"len() of {self.a()}")

    def as_index(self, m: Machine, user: Callable[[Any], Any] = operator.index) -> Any:
        """An int or a slice of ints, for list and tuple; ``user``, which takes one, words the error."""
        cls = self.python_type()
        if cls is not slice and m.class_lookup(cls, "__index__") is MISSING:
            m.throw_as(user, namesake(cls))
        try:
            constant = self.as_constant()
        except NotConstant:
            raise Unsupported(f"{self.a()} as index of a list") from None
        return constant if isinstance(constant, slice) else m.real(operator.index, constant)

    def mapping_pairs(self, m: Machine) -> list[tuple[Value, Value]]:
        """Keys and values of a mapping, as ``**mapping`` reads them."""
        keys = m.listed(m.call(m.get_attr(self, "keys"), [], {}))
        return [(key, self.get_item(m, key)) for key in keys]

    def changing_length(self, m: Machine) -> Value | None:
        """The length as a number that changes from call to call; None for one that is a constant."""
        return None

    def get_item(self, m: Machine, key: Value) -> Value:
        raise Unsupported(f"an item of {self.a()}")

    def set_item(self, m: Machine, key: Value, value: Value) -> None:
        raise Unsupported(f"writing an item of {self.a()}")

    def del_item(self, m: Machine, key: Value) -> None:
        raise Unsupported(f"deleting an item of {self.a()}")

    def contains(self, m: Machine, item: Value) -> bool:
        raise Unsupported(f"`in` on {self.a()}")


class Null(Value):
    """The NULL that CPython's call sequence pushes below a callable."""

    cls = type(None)


NULL = Null()


def to_call(function: Any) -> list[Any]:
    """A function on the stack as a call looks for it, with NULL for the object that a method is bound to."""
    return [NULL, function] if sys.version_info < (3, 13) else [function, NULL]


class HandledV(Value):
    """What PUSH_EXC_INFO leaves below a handler's stack: ``error`` is being handled until POP_EXCEPT takes this off."""

    cls = type(None)

    def __init__(self, error: Value) -> None:
        self.error = error
        self.star = False  # whether `except*` has split it


class Lazy:
    """A not yet wrapped item of an existing container: ``force`` wraps it, and only then is it guarded."""

    __slots__ = ("real", "source")

    def __init__(self, real: Any, source: Source | None) -> None:
        self.real = real
        self.source = source

    def as_constant(self) -> Any:
        """The object, where no guard is needed to rely on it; else NotConstant: ``Machine.settle`` reads it first."""
        if self.source is not None:
            raise NotConstant(self)
        return self.real


class Frame(Protocol):
    """One activation of a Python function, as those see it who do not run it: ``interp/frame.py``."""

    code: CodeType
    instructions: tuple[Instruction, ...]
    namespace: dict[str, Any]
    module: str
    locals: dict[str, Value]
    cells: dict[str, Any]
    stack: list[Value]
    pc: int
    finished: tuple[str, Value] | None
    locals_given: Value | None
    raised: dict[int, tuple[Value, int]]

    def push(self, value: Value) -> None: ...
    def pop(self) -> Value: ...
    def jump(self, instruction: Instruction) -> None: ...
    def instruction(self) -> Instruction: ...
    def origin(self) -> Origin: ...
    def handled(self) -> Value | None: ...
    def module_is_ours(self) -> bool: ...
    def is_protected(self) -> bool: ...
    def unwind(self, m: Machine, error: UserError, index: int) -> bool: ...
    def step(self, m: Machine) -> None: ...
    def run(self, m: Machine) -> tuple[str, Value]: ...


class Machine(Protocol):
    """One capture, as values and meanings see it: what it accumulates, and the verbs that they are written in.

    ``frames[0]`` is the outermost frame. What a feature keeps of a capture is a class of its own: see ``state``.
    """

    function: FunctionType
    changes: dict[Source, int]  # how often what stands there was another number or length
    varying: Collection[str]  # names of what an operation gave that the graph ended for
    fullgraph: bool
    frames: list[Frame]
    steps_left: int
    dropped: list[Frame]  # of generators that wait in a `try` or a `with`, and that nothing refers to any more
    guards: dict[tuple[Any, ...], Guard]
    wrapped: dict[int, tuple[Any, Value]]  # by id: each object seen, and its value
    mutated: dict[int, Value]
    modes: Modes  # grad mode, autocast, ... as the entry finds them
    class_sources: dict[type, Source]
    kept: list[Any]
    states: dict[type, Any]

    def state(self, kind: type[S]) -> S:
        """What a feature keeps of this capture: one object of its class, made when first asked for."""
        ...

    def origin(self) -> Origin:
        """The innermost line of the user's."""
        ...

    # --- what the entry relies on ----------------------------------------------------------------------------------
    def guard(self, source: Source, check: str, expected: Any, why: str) -> None: ...

    def class_lookup(self, cls: type, name: str) -> Any:
        """What stands under a name in a class or its bases, which the entry relies on from here on."""
        ...

    def is_stable(self, module: str | None) -> bool:
        """Whether a module's functions and classes are taken as they are."""
        ...

    # --- objects and values ----------------------------------------------------------------------------------------
    def wrap(self, real: Any, source: Source | None = None) -> Value:
        """A value for an existing object; without a source, one that is the same at each call."""
        ...

    def wrap_result(self, real: Any) -> Value:
        """A value for an object that a real call just made."""
        ...

    def forced(self, value: Any) -> Value:
        """The value of what may be Lazy."""
        ...

    def settle(self, value: Any) -> Value:
        """Read (and so guard) all that lies inside a container, for those who take it as one constant."""
        ...

    def settled_key(self, key: Value) -> Value:
        """A key or set member, with the items of a tuple read."""
        ...

    def mutate(self, value: Value) -> None:
        """Note that an existing object was written to."""
        ...

    # --- Python's protocols ----------------------------------------------------------------------------------------
    def get_attr(self, owner: Value, name: str) -> Value: ...
    def iterate(self, value: Value) -> Value: ...

    def listed(self, value: Value) -> list[Value]:
        """All items of an iterable."""
        ...

    def truth(self, value: Value) -> bool: ...

    def identical(self, left: Value, right: Value) -> bool:
        """``left is right``."""
        ...

    def equal(self, left: Value, right: Value) -> bool: ...
    def binary(self, function: Callable[..., Any], left: Value, right: Value) -> Value: ...
    def unary(self, function: Callable[..., Any], value: Value) -> Value: ...

    # --- calls -----------------------------------------------------------------------------------------------------
    def call(self, function: Value, args: list[Value], kwargs: dict[str, Value]) -> Value: ...

    def inline(self, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Interpret a Python function's body."""
        ...

    def polyfill(self, name: str) -> Value: ...

    def fold(self, function: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Call a pure function on constants."""
        ...

    def torch_call(self, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value: ...
    def torch_method(self, owner: Value, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value: ...

    def real(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call real Python on real objects; what it raises is the user's exception."""
        ...

    def raise_real(self, error: Exception) -> NoReturn:
        """Raise in the program what real code raised."""
        ...

    def throw(self, cls: type[BaseException], *args: Any) -> NoReturn:
        """Raise an exception in the user's program."""
        ...

    def throw_as(self, function: Callable[..., Any], /, *args: Any, of: Value | None = None) -> NoReturn:
        """Raise in the program what ``function`` raises for stand-ins: CPython's own words."""
        ...


# --- calls upwards ----------------------------------------------------------------------------------------------------
class Declared(Generic[P, R]):
    """A function that files call which stand below the one that defines it, as a header declares it.

    @declared                                    # values/binding.py
    def bind(m: Machine, attribute: Any, ...) -> Value: ...

    @bind.defined                                # values/attributes.py
    def _bind(m: Machine, attribute: Any, ...) -> Value:
        return MethodV(...)
    """

    def __init__(self, signature: Callable[P, R]) -> None:
        functools.update_wrapper(self, signature)
        self.body: Callable[P, R] | None = None
        DECLARED.append(self)

    def defined(self, body: Callable[P, R]) -> Callable[P, R]:
        if self.body is not None:
            raise ValueError(f"{body.__module__}.{body.__name__}: defined already by {self.body.__module__}")
        self.body = body
        return body

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.body(*args, **kwargs)  # type: ignore[misc]  # tests/contracts look that each is defined


DECLARED: list[Declared[..., Any]] = []
declared = Declared
