"""``TorchFunctionMode``s entered inside the function, ``with torch.device(...)`` among them, and objects of classes
with a ``__torch_function__``.

    with Doubles():          # its __torch_function__ says what torch.sin means
        y = torch.sin(x)     ->   the nodes that interpreting Doubles.__torch_function__(mode, torch.sin, ...) leaves

Which calls a mode is asked about, and with what, is PyTorch's affair: the call runs on tensors without data under a
*probe*, a real mode, and what the probe is asked the machine answers by interpreting the user's ``__torch_function__``,
with the mode popped as PyTorch pops it. What the answers leave in the graph needs no mode when the graph runs. Where
the graph ends inside such a block, the entry pushes the modes, and Python goes on under them. Objects that say
themselves what an operation on them means are asked in the same way: PyTorch gets stand-ins, for which the machine
answers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ... import torch_compat
from ..errors import Fails, Unsupported, UserError
from ..graph.arguments import convert
from ..graph.builder import GraphBuilder
from ..meanings.registry import handles, method
from ..polyfills import contexts as polyfills
from ..protocol import Machine, NotConstant, Value
from ..values.constant import NONE, ConstantV, is_none
from ..values.containers import ListV, SequenceV, TupleV
from ..values.dicts import DictV
from ..values.function_modes import FunctionModes, dispatched
from ..values.instance import InstanceV
from ..values.tensor import TensorV

DeviceContext = torch_compat.DeviceContext


# --- entering and leaving ---------------------------------------------------------------------------------------------
@handles(TorchFunctionMode.__init__)
def make_mode(m, args, kwargs):
    return NONE


@handles(TorchFunctionMode.__enter__)
def enter_mode(m, args, kwargs):
    m.state(FunctionModes).entered = [*m.state(FunctionModes).entered, args[0]]
    return args[0]


@handles(TorchFunctionMode.__exit__)
def leave_mode(m, args, kwargs):
    if not m.state(FunctionModes).entered:
        raise Unsupported("leaving a TorchFunctionMode that was entered before the call")
    m.state(FunctionModes).entered = m.state(FunctionModes).entered[:-1]
    return NONE


@handles(torch.device)
def make_device(m, args, kwargs):
    answer = dispatched(m, torch.device, args, kwargs)
    return m.fold(torch.device, args, kwargs) if answer is None else answer


@method(torch.device, name="__enter__")
def enter_device(m, self):
    """There is one device at most, below all other modes."""
    make_device(m, [self], {})  # as DeviceContext.__init__ does
    m.state(FunctionModes).device_contexts.append(m.state(FunctionModes).entered)
    mode = InstanceV(DeviceContext, DeviceContext(self.as_constant()))
    m.state(FunctionModes).entered = [
        mode,
        *(other for other in m.state(FunctionModes).entered if other.cls is not DeviceContext),
    ]
    return self


@method(torch.device, name="__exit__")
def leave_device(m, self, *error):
    if not m.state(FunctionModes).device_contexts:
        raise Unsupported("leaving a torch.device that was entered before the call")
    before = m.state(FunctionModes).device_contexts.pop()
    others = [mode for mode in m.state(FunctionModes).entered if mode.cls is not DeviceContext]
    m.state(FunctionModes).entered = [*(mode for mode in before if mode.cls is DeviceContext), *others]
    return NONE


@handles(torch.get_default_device)
def get_default_device_(m, args, kwargs):
    for mode in m.state(FunctionModes).entered:
        if mode.cls is DeviceContext:
            return ConstantV(mode.real.device)
    return m.fold(torch.get_default_device, args, kwargs)


@handles(torch_compat.DisableTorchFunctionSubclass)
def without_subclasses(m, args, kwargs):
    """No tensor in a graph is of a class with a ``__torch_function__``: there is nothing to turn off."""
    return m.call(m.wrap(polyfills.nothing_changes), [], {})


@handles(
    torch.overrides.has_torch_function, torch.overrides.has_torch_function_unary,
    torch.overrides.has_torch_function_variadic, torch_compat.function_mode_enabled,
)  # fmt: skip
def has_torch_function_(m, args, kwargs):
    return ConstantV(bool(m.state(FunctionModes).entered) or overridden(m, args, kwargs))


@handles(torch.overrides.handle_torch_function)
def handle_torch_function_(m, args, kwargs):
    """``handle_torch_function(api, relevant, *args, **kwargs)``, where one of the above said yes."""
    function, relevant = args[0].as_constant(), args[1]
    if overridden(m, m.listed(relevant), {}):
        answer = _asked(m, function, args[2:], kwargs)
        if answer is not None:
            return answer
    if not m.state(FunctionModes).entered:
        raise Unsupported("torch.overrides.handle_torch_function without a mode")
    return ask(m, function, TupleV([]), args[2:], kwargs)


@handles(torch_compat.function_mode_stack)
def function_mode_stack_(m, args, kwargs):
    return ListV([*(m.wrap(mode) for mode in torch_compat.function_mode_stack()), *m.state(FunctionModes).entered])


# --- asking -----------------------------------------------------------------------------------------------------------
class Probe(TorchFunctionMode):
    """Answers what PyTorch asks a mode by having the machine interpret the innermost symbolic one."""

    def __init__(self, m: Machine) -> None:
        self.m = m
        self.known: dict[int, tuple[Any, Value]] = {}  # real objects and what they stand for
        self.kinds: dict[type, type] = {}  # classes with a __torch_function__, and what stands for their objects
        self.asked = False

    def __torch_function__(
        self, func: Any, types: tuple[type, ...], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.asked = True
        values = [self.symbolic(a) for a in args]
        named = {k: self.symbolic(v) for k, v in (kwargs or {}).items()}
        return self.real(ask(self.m, func, self._classes(types), values, named))

    def _classes(self, types: tuple[type, ...]) -> TupleV:
        known = {made: cls for cls, made in self.kinds.items()}
        kinds = [torch.Tensor if issubclass(t, torch_compat.FakeTensor) else known.get(t, t) for t in types]
        return TupleV([self.m.wrap(t) for t in kinds])

    def asks_object(
        self,
        owner: Any,
        func: Any,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Called by PyTorch on the stand-in of an object with a ``__torch_function__``."""
        self.asked = True
        values = [self.symbolic(a) for a in args]
        named = {k: self.symbolic(v) for k, v in (kwargs or {}).items()}
        with outside_probe(self.m):
            return self.real(_answer(self.m, self.symbolic(owner), func, self._classes(types), values, named))

    def real(self, value: Value) -> Any:
        """An object that stands for a value: a tensor without data for a tensor."""
        try:
            real = convert(value, self._stand_in, instance=self._object)
        except (NotConstant, Unsupported):
            real = _Answer()
        self.known[id(real)] = real, value
        return real

    def _object(self, value: InstanceV) -> Any:
        made = self._kind(value.cls)() if overrides(self.m, value) else _Answer()
        self.known[id(made)] = made, value
        return made

    def _kind(self, cls: type) -> type:
        """A class for stand-ins of ``cls``, which comes before those for its bases as PyTorch asks subclasses first."""
        if cls not in self.kinds:
            bases = tuple(self._kind(base) for base in cls.__bases__ if hasattr(base, "__torch_function__"))
            asks = property(lambda owner: functools.partial(self.asks_object, owner))
            self.kinds[cls] = type(cls.__name__, bases, {"__torch_function__": asks})
        return self.kinds[cls]

    def _stand_in(self, value: TensorV) -> torch.Tensor:
        made = torch_compat.stand_in(value.fake, value.python_type())
        self.known[id(made)] = made, value
        return made

    def symbolic(self, real: Any) -> Value:
        """The value that a real object, an argument or a result, stands for."""
        known = self.known.get(id(real))
        if known is not None:
            return known[1]
        if isinstance(real, torch.Tensor):
            found = _tensor_of(self.m.state(GraphBuilder), real)
            if found is None:
                raise Unsupported("a tensor that PyTorch made on its way to a TorchFunctionMode")
            return found
        if type(real) in (tuple, list):
            items = [self.symbolic(item) for item in real]
            return TupleV(items) if type(real) is tuple else ListV(items)
        if type(real) is dict:
            return DictV.of([(self.m.wrap_result(k), self.symbolic(v)) for k, v in real.items()])
        return self.m.wrap_result(real)


class _Answer:
    """Stands for an answer that is no tensor, container or constant."""


def overrides(m: Machine, value: Any) -> bool:
    """Whether a value is an object that says itself what PyTorch's functions mean for it."""
    if not isinstance(value, InstanceV) or value.payload is not None:
        return False
    answer = value.method(m, "__torch_function__")
    return answer is not None and getattr(answer, "real", None) is not torch_compat.NO_TORCH_FUNCTION


def overridden(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> bool:
    """Whether PyTorch asks one of the arguments, or of the items of a sequence among them, what a call means."""
    for value in (*args, *kwargs.values()):
        items = value.all(m) if isinstance(value, SequenceV) else (m.forced(value),)
        if any(overrides(m, item) for item in items):
            return True
    return False


def _tensor_of(builder: GraphBuilder, fake: torch.Tensor) -> TensorV | None:
    """A tensor of the graph, or of one around it, by its fake."""
    found = builder.by_fake.get(id(fake))
    if found is not None and found.fake is fake:
        return found
    return _tensor_of(builder.parent, fake) if builder.parent is not None else None


def ask(m: Machine, func: Any, types: TupleV, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """What the innermost mode answers; while it does, it is off."""
    state = m.state(FunctionModes)
    modes, probe = state.entered, state.probe
    mode, state.entered, state.probe = modes[-1], modes[:-1], None
    try:
        if mode.cls is DeviceContext:
            if func in torch_compat.device_constructors() and is_none(kwargs.get("device", NONE)):
                kwargs = {**kwargs, "device": ConstantV(mode.real.device)}
            return m.call(m.wrap(func), args, kwargs)
        return _answer(m, mode, func, types, args, kwargs)
    finally:
        state.entered, state.probe = modes, probe


def _answer(m: Machine, asked: Value, func: Any, types: TupleV, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """What the ``__torch_function__`` of a mode or an object gives."""
    named = DictV.of([(ConstantV(k), v) for k, v in kwargs.items()])
    return m.call(m.get_attr(asked, "__torch_function__"), [m.wrap(func), types, TupleV(args), named], {})


@dispatched.defined
def _dispatched(m: Machine, function: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    return _asked(m, function, args, kwargs) if m.state(FunctionModes).entered else None


def answered(m: Machine, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """What ``function(*args, **kwargs)`` means to objects among its arguments; None where none says so."""
    return _asked(m, function, args, kwargs) if overridden(m, args, kwargs) else None


def _asked(m: Machine, function: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    probe = Probe(m)
    reals = [probe.real(a) for a in args]
    named = {k: probe.real(v) for k, v in kwargs.items()}
    try:
        with probing(m, probe):
            result = function(*reals, **named)
    except (Unsupported, UserError):
        raise
    except Exception as error:
        if not probe.asked:
            return None
        raise Fails(f"the program raises {type(error).__name__}") from None
    return probe.symbolic(result) if probe.asked else None


@contextmanager
def probing(m: Machine, probe: Probe | None = None) -> Iterator[None]:
    """PyTorch asks the symbolic modes, if there are any, about what runs here."""
    if not m.state(FunctionModes).entered:
        yield
        return
    state = m.state(FunctionModes)
    before, state.probe = state.probe, probe or Probe(m)
    try:
        with state.probe:
            yield
    finally:
        state.probe = before


@contextmanager
def outside_probe(m: Machine) -> Iterator[None]:
    """The machine goes on inside of what PyTorch runs under a probe (a function that ``vmap`` calls)."""
    state = m.state(FunctionModes)
    probe, state.probe = state.probe, None
    if probe is not None:
        probe.__exit__(None, None, None)
    try:
        yield
    finally:
        if probe is not None:
            probe.__enter__()
        state.probe = probe


# --- what a mode's code does with what it gets ------------------------------------------------------------------------
@method(type(torch.Tensor.shape), name="__get__")
def _read_attribute(m: Machine, descriptor: Value, owner: Value, cls: Value = NONE) -> Value:
    """``torch.Tensor.shape.__get__(x)``."""
    real = descriptor.as_constant()
    if isinstance(owner, TensorV) and issubclass(torch.Tensor, real.__objclass__):
        return m.get_attr(owner, real.__name__)
    raise Unsupported(f"`__get__` of the {descriptor.describe()}")
