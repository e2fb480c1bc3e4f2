"""Functions of the standard library and of torch whose insides are not worth interpreting: what calling them means."""

from __future__ import annotations

import functools
import pickle
import sys
import typing
from collections.abc import Iterator
from typing import Any

import torch

from ...records.sources import Attr, Module
from ..errors import Unsupported
from ..guarding.functions import cells_of
from ..protocol import Machine, Value
from ..resume_code import users_code
from ..values.arrays import ArrayV
from ..values.constant import ConstantV
from ..values.dicts import DictV
from ..values.hashing import hash_key
from ..values.known import KnownV
from .folding import fold
from .registry import Apply, folded, handles, made_like, named

# --- functools.singledispatch -----------------------------------------------------------------------------------------
_generic: Any = functools.singledispatch(lambda value: value)


@made_like(_generic.__code__)
def call_generic(m: Machine, function: KnownV, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A generic function: the implementation for the class of its first argument."""
    if not args:
        m.throw_as(function.real)
    chooser = m.get_attr(function, "dispatch")
    assert isinstance(chooser, KnownV)
    return m.call(_implementation(m, chooser, m.forced(args[0]).python_type()), args, kwargs)


@made_like(_generic.dispatch.__code__)
def dispatch(m: Machine, function: KnownV, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return _implementation(m, function, args[0].as_constant())


def _implementation(m: Machine, chooser: KnownV, cls: type) -> Value:
    """What is registered for ``cls``: the entry relies on all that is."""
    known = cells_of(m, chooser)["registry"].get(m)
    assert isinstance(known, DictV)
    registry = known.real
    if id(known) in m.mutated:
        raise Unsupported("a generic function that the program has just added to")
    known.fill(m)
    chosen = registry[cls] if cls in registry else m.real(functools._find_impl, cls, registry)  # type: ignore[attr-defined]
    key = next(key for key, function in registry.items() if function is chosen)
    return known.get_item(m, m.wrap(key))


# --- torch.distributed: questions about the default group of processes -----------------------------------------------
_WORLD = Attr(Attr(Module("torch.distributed"), "group"), "WORLD")


def _is_initialized(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    world = torch.distributed.group.WORLD
    m.guard(_WORLD, "type", type(world), "asked whether there is a group of processes")
    return ConstantV(world is not None)


def _of_world(name: str) -> Apply:
    """A number of the default group; another group's, or one where there is none, is asked of at a break."""

    def answer(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        world = torch.distributed.group.WORLD
        if world is None or any(not v.is_constant() or v.as_constant() is not None for v in (*args, *kwargs.values())):
            raise Unsupported(f"calling `torch.distributed.{name}`", "call it outside the compiled function")
        m.guard(_WORLD, "identity", world, "asked about the group of processes")
        return ConstantV(m.real(getattr(torch.distributed, name)))

    return answer


# By name: there are builds without them.
named("torch.distributed.distributed_c10d", "is_initialized")(_is_initialized)
for _name in ("get_rank", "get_world_size"):
    named("torch.distributed.distributed_c10d", _name)(_of_world(_name))


# --- torch: labels for profilers, questions about devices -------------------------------------------------------------
# Their answers do not change while a program runs.
folded(
    torch.cuda.is_available, torch.cuda.device_count, torch.cuda.is_bf16_supported, torch.cuda.get_device_capability,
    torch.cuda.get_device_name, torch.backends.mps.is_available, torch.backends.mps.is_built,
    torch.backends.cuda.is_built, torch.xpu.is_available, torch.distributed.is_available,
)  # fmt: skip

record_function = torch.autograd.profiler.record_function


@handles(record_function.__init__)
def make_label(m, args, kwargs):
    return m.inline(KnownV(record_function.__init__), args, kwargs)


# --- pickle -----------------------------------------------------------------------------------------------------------
@handles(pickle.dumps)
def dumps(m, args, kwargs):
    """Of plain values. The bytes tell one text from two equal ones, which may be either from call to call: where no two
    are equal, and nothing lies in two places, they do not.
    """
    parts = list(_parts(m.settle(args[0]).as_constant() if args else None))
    texts = [part for part in parts if type(part) in (str, bytes)]
    if not all(type(part) in _ATOMS for part in parts) or len(set(texts)) != len(texts):
        raise Unsupported("`pickle.dumps`, whose result tells which parts are one object")
    return fold(m, pickle.dumps, args, kwargs)


_ATOMS = (type(None), bool, int, float, str, bytes)


def _parts(value: Any) -> Iterator[Any]:
    """A dictionary's keys and values, a list's or tuple's items, or the value itself."""
    if type(value) is dict:
        yield from (part for item in value.items() for part in item)
    elif type(value) in (list, tuple):
        yield from value
    else:
        yield value


# --- NumPy ------------------------------------------------------------------------------------------------------------
@handles(torch.from_numpy)
def from_numpy_(m, args, kwargs):
    """A tensor of an array made inside, which nothing else writes to: a copy of it."""
    if not (len(args) == 1 and isinstance(args[0], ArrayV)):
        raise Unsupported("torch.from_numpy of an array that was there before the call")
    return m.torch_call(torch.tensor, args, {})


# --- typing -----------------------------------------------------------------------------------------------------------
_same = getattr(typing, "_idfunc", None)
if _same is not None:  # what calling a NewType is until 3.11
    handles(_same)(lambda m, args, kwargs: args[0])


# --- looking at frames ------------------------------------------------------------------------------------------------
@handles(locals)
def locals_(m, args, kwargs):
    """The local variables of the innermost frame that is no comprehension: up to 3.12 in one dictionary of the frame,
    which each call brings up to date, from 3.13 on in a new one.
    """
    frame = m.frames[-1]
    if frame.code.co_name == "<module>" or frame.code.co_flags & 1 == 0:
        raise Unsupported("locals() outside a function")
    code = users_code(frame.code)
    names = [*code.co_varnames, *code.co_cellvars, *code.co_freevars]
    found = DictV() if frame.locals_given is None or sys.version_info >= (3, 13) else frame.locals_given
    frame.locals_given = found
    for name in dict.fromkeys(names):
        value = frame.cells[name].get(m) if name in frame.cells else frame.locals.get(name)
        if value is not None:
            found.set_item(m, ConstantV(name), m.forced(value))
        elif found.lookup(m, hash_key(ConstantV(name))) is not None:
            found.del_item(m, ConstantV(name))
    return found
