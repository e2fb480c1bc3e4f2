"""The Python expression of a symbolic value in entry code: one builder per kind, and ``BUILDERS``, their table."""

from __future__ import annotations

import enum
import functools
import math
import weakref
from collections import defaultdict
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch

from ...records.literals import literal
from ..errors import CannotResume, OutOfOrder
from ..graph.builder import GraphBuilder
from ..protocol import Value
from ..resume_code import live_cells, live_locals, resume_code
from ..torch_api.inference_mode import GuardMethodV, InferenceV
from ..values.arrays import ArrayV
from ..values.binding import class_lookup
from ..values.constant import ConstantV
from ..values.containers import CellV, ListV, SequenceV, SetV, SliceV, TupleV
from ..values.dicts import DictV, DictViewV
from ..values.effects_log import SnapshotV
from ..values.functions import FunctionV, PartialV, SuperV, WeakRefV
from ..values.instance import ExceptionV, InstanceV, TracebackV
from ..values.iterators import (
    DictIterV,
    EnumerateV,
    FilterV,
    GeneratorV,
    MapV,
    RangeIterV,
    ReversedV,
    SequenceIterV,
    SetIterV,
    ZipV,
)
from ..values.known import KnownV
from ..values.made import ClassRecipe, MadeV, Recipe
from ..values.methods import BuiltinMethodV, MethodV, TensorMethodV
from ..values.number import NumberV
from ..values.opaque import OpaqueV
from ..values.sizes import ConditionV, SizeV
from ..values.tensor import TensorV
from ..values.transformed import TransformedV
from . import modes as emit_modes
from .emitter import Builders, Emitter
from .resume_call import entry_point


def _constant(e: Emitter, v: ConstantV) -> str:
    real = v.value
    if (text := literal(real)) is not None:
        return text
    if isinstance(real, enum.Enum) and isinstance(made := e.m.wrap(type(real)), MadeV):
        return f"{e.expr(made)}[{real.name!r}]"
    return e.pin(real)


def _number(e: Emitter, v: NumberV) -> str:
    if v.source is not None:
        return e.from_source(v.source)
    assert v.text is not None
    parts = [f"({text})" if text.startswith("-") else text for text in map(e.expr, v.parts)]
    kind = type(v.known)
    name = e.fresh("text" if kind is str else "number")
    text = v.text.format(*parts)
    if v.text.startswith("math."):
        text = f"{e.pin(math, 'math')}.{text.removeprefix('math.')}"
    e.numbers.append(f"{name} = {text}" if kind is str else f"{name} = reconstruct.number({text}, {kind.__name__})")
    return e.named(v, name)


def _size(e: Emitter, v: SizeV) -> str:
    """A size, as what is computed of those that the entry reads."""
    text = e.size_text(v.size)
    if v.source is not None or v.by_data:
        return text
    name = e.fresh("size")
    e.numbers.append(f"{name} = {text}")
    return e.named(v, name)


def _condition(e: Emitter, v: ConditionV) -> str:
    left, right = (e.size_text(size) for size in (v.relation.left, v.relation.right))
    return f"({left} {v.relation.relation} {right})"


def _tensor(e: Emitter, v: TensorV) -> str:
    name = e.fresh(e.preferred.get(id(v), v.node.name))
    e.names[id(v)] = name
    e.outputs.append(v)
    return name


def _known(e: Emitter, v: KnownV | OpaqueV) -> str:
    return e.pin(v.real)


def _snapshot(e: Emitter, v: SnapshotV) -> str:
    if e.m.state(GraphBuilder).flagged:
        raise OutOfOrder("an input that is made to require grad")
    if e.m.state(GraphBuilder).writes == v.writes:
        return e.expr(v.value)
    if v.copy is None:
        raise OutOfOrder("the graph writes to what may be shown")
    return e.expr(v.copy)


def _sequence(e: Emitter, v: SequenceV) -> str:
    items = e.listing(v.items)
    if isinstance(v, TupleV):
        plain = f"({items},)" if v.items else "()"
        if v.cls is tuple:  # may be seen to be one and the same in two places, unless it is a constant
            is_plain = all(isinstance(item, (ConstantV, NumberV)) for item in v.items)
            return plain if is_plain else e.name_value(v, "a_tuple", plain)
        if v.cls is torch.Size:
            return f"torch.Size({plain})"
        if hasattr(v.cls, "_make"):
            return e.name_value(v, v.cls.__name__.lower(), f"{e.pin(v.cls)}._make({plain})")
        return e.name_value(v, v.cls.__name__, f"{e.pin(v.cls)}({plain})")
    text = v.arguments_of(f"[{items}]") if isinstance(v, ListV) else f"[{items}]"
    return e.name_value(v, "a_list", text if v.cls is list else f"{e.pin(v.cls)}({text})")


def _dict(e: Emitter, v: DictV) -> str:
    text = e.mapping(v)
    if v.cls is defaultdict:
        text = f"{e.pin(v.cls)}({e.expr(v.default_factory)}, {text})"
    elif v.cls is not dict:
        text = f"{e.pin(v.cls)}({text})"
    name = e.name_value(v, "a_dict", text)
    for attribute, value in v.attrs.items():
        e.line(f"setattr({name}, {attribute!r}, {e.expr(value)})")
    return name


def _set(e: Emitter, v: SetV) -> str:
    return e.name_value(v, "a_set", f"{v.cls.__name__}([{e.listing(v.in_order())}])")


def _exception(e: Emitter, v: ExceptionV) -> str:
    name = e.name_value(v, "error", _exception_text(e, v))
    for slot, value in v.slots.items():
        e.line(f"{name}.{slot} = {e.expr(value)}")
    return name


def _exception_text(e: Emitter, v: ExceptionV) -> str:
    attributes = e.mapping(v.attrs) if v.attrs is not None else "{}"
    if v.group is not None:
        return f"reconstruct.group({e.pin(v.cls)}, {e.listing([*v.group, TupleV(v.args)])}, {attributes})"
    if v.raised is not None and attributes == "{}":
        return f"reconstruct.raised({e.pin(v.raised)})"
    args, kwargs = v.initialized if v.initialized is not None else (v.args, {})
    items = e.listing(args)
    named = "".join(f", {k}={e.expr(x)}" for k, x in kwargs.items())
    if attributes == "{}" and not isinstance(class_lookup(v.cls, "__init__"), FunctionType):
        return f"{e.pin(v.cls)}({(items + named).removeprefix(', ')})"
    made = f"{e.pin(v.cls)}, ({items}{',' if args else ''}), {attributes}"
    if v.initialized is not None and v.builtin_class().__init__ is not BaseException.__init__:
        made += f", initialize={e.pin(v.builtin_class())}.__init__{named}"
    return f"reconstruct.exception({made})"


def _instance(e: Emitter, v: InstanceV) -> str:
    if v.cls is object:
        return e.name_value(v, "an_object", "object()")
    name = e.fresh(v.cls.__name__.lower())
    immutable = issubclass(v.cls, (tuple, str, int, float, bytes, frozenset))
    head = f"reconstruct.instance({e.pin(v.cls)}"
    if immutable and v.payload is not None:
        head += f", items={_payload(e, v.payload)}"
    # named before its content is built: an object may refer to itself
    e.line(f"{name} = {head})")
    e.named(v, name)
    content = [e.mapping(v.attrs)] if v.attrs is not None and v.attrs.items else []
    if v.payload is not None and not immutable:
        content.append(f"items={_payload(e, v.payload)}")
    if v.slots:
        content.append("slots={" + ", ".join(f"{k!r}: {e.expr(s)}" for k, s in v.slots.items()) + "}")
    if content:
        e.line(f"reconstruct.fill({name}, {', '.join(content)})")
    return name


def _payload(e: Emitter, payload: Value) -> str:
    if isinstance(payload, DictV):
        return e.mapping(payload)
    if isinstance(payload, SetV):
        return f"[{e.listing(list(payload.items.values()))}]"
    if isinstance(payload, SequenceV):
        return f"[{e.listing(payload.items)}]"
    return e.expr(payload)


def _cell(e: Emitter, v: CellV) -> str:
    name = e.name_value(v, "cell", "reconstruct.cell()")
    if v.content is not None:
        e.line(f"{name}.cell_contents = {e.expr(v.content)}")
    return name


def _function(e: Emitter, v: FunctionV) -> str:
    code = e.pin(v.code, f"code_of_{v.code.co_name}")
    parts = [code, e.pin(v.namespace, "globals_of_" + str(v.namespace.get("__name__", "")))]
    parts.append(e.tuple_of(v.defaults))
    parts.append("{" + ", ".join(f"{k!r}: {e.expr(d)}" for k, d in v.kwdefaults.items()) + "}")
    # the function is named after its cells: a recursive inner function is in its own cell
    cells = [e.name_value(c, "cell", "reconstruct.cell()") if _new_cell(e, c) else e.expr(c) for c in v.closure]
    parts.append(f"({', '.join(cells)}{',' if cells else ''})")
    if v.attrs.items or v.named.items:
        parts.append("{" + ", ".join(e.pairs(d) for d in (v.named, v.attrs) if d.items) + "}")
    if v.annotations is not None and v.annotations.items:
        parts.append(f"annotations={e.mapping(v.annotations)}")
    name = e.name_value(v, v.code.co_name, f"reconstruct.function({', '.join(parts)})")
    for cell, cell_name in zip(v.closure, cells):
        if cell.real is None and cell.content is not None and id(cell) not in e.filled_cells:
            e.filled_cells.add(id(cell))
            e.line(f"{cell_name}.cell_contents = {e.expr(cell.content)}")
    return name


def _new_cell(e: Emitter, cell: CellV) -> bool:
    return cell.real is None and cell.source is None and id(cell) not in e.names


def _array(e: Emitter, v: ArrayV) -> str:
    if v.root is None:
        return e.name_value(v, "array", f"{e.pin(v.array)}.copy(order='K')")
    if not (v.root.array.flags.c_contiguous or v.root.array.flags.f_contiguous):
        raise CannotResume("a view of a NumPy array that is laid out out of order")
    layout = f"{v.array.shape}, {v.array.strides}, {v.offset()}, {v.array.flags.writeable}"
    return e.name_value(v, "array", f"reconstruct.array_view({e.expr(v.root)}, {e.pin(v.array.dtype)}, {layout})")


def _iterator(e: Emitter, v: Value) -> str:
    """An iterator over what it iterated over, as far on: what changes there later is seen."""
    if isinstance(v, ZipV):
        strict = ", strict=True" if v.strict else ""
        return e.name_value(v, "iterator", f"zip({e.listing(v.iterators)}{strict})")
    if isinstance(v, EnumerateV):
        return e.name_value(v, "iterator", f"enumerate({e.expr(v.inner)}, {v.number})")
    if isinstance(v, MapV):
        return e.name_value(v, "iterator", f"map({e.listing([v.function, *v.rows.iterators])})")
    if isinstance(v, FilterV):
        return e.name_value(v, "iterator", f"filter({e.listing([v.predicate, v.inner])})")
    if isinstance(v, DictIterV):
        if not v.ended and not v.changed and id(v.view.of) not in e.m.mutated:
            return e.name_value(v, "iterator", f"reconstruct.advanced({e.expr(v.view)}, {v.taken})")
        raise CannotResume("an iterator over a dictionary that was changed, across a graph break")
    if isinstance(v, SequenceIterV) and (changed := v.outlived()):
        raise CannotResume(f"{changed}, across a graph break")
    if isinstance(v, SetIterV) and v.of.known_order() and id(v.of) not in e.m.mutated:
        return e.name_value(v, "iterator", f"reconstruct.advanced({e.expr(v.of)}, {v.index})")
    if isinstance(v, SequenceIterV) and isinstance(v.items, SequenceV):
        return e.name_value(v, "iterator", f"reconstruct.advanced({e.expr(v.items)}, {v.index})")
    if isinstance(v, RangeIterV):
        return e.name_value(v, "iterator", f"iter({v.rest!r})")
    if isinstance(v, ReversedV):
        if v.of.cls not in (list, tuple):
            raise CannotResume(f"{v.a()} across a graph break")
        return e.name_value(v, "iterator", f"reconstruct.going_down({e.expr(v.of)}, {v.index})")
    if isinstance(v, SequenceIterV):
        return e.name_value(v, "iterator", f"reconstruct.rest([{e.listing(v.rest(e.m))}])")
    raise CannotResume(f"{v.a()} across a graph break")


def _generator(e: Emitter, v: GeneratorV) -> str:
    """A suspended generator: its code entered where it is suspended, with its variables."""
    frame = v.frame
    names = "" if frame.module_is_ours() else ", {__name__!r}, {__qualname__!r}".format(**v.names)
    if v.done:
        return e.name_value(v, "generator", f"reconstruct.generator(reconstruct.finished(){names})")
    if frame.finished is None:
        raise CannotResume("a generator that is running, across a graph break")
    # before its first step it waits for a None that starts it, which the prologue gets from its own yield
    stack = frame.stack if frame.finished[0] == "yield" else frame.stack[:-1]
    live = live_locals(frame.code, frame.pc)
    values = {n: e.expr(x) for n, x in frame.locals.items() if n in live}
    used = live_cells(frame.code, frame.pc)
    own = [n for n in frame.code.co_cellvars if n in used and n in frame.cells]
    cells = {n: e.expr(frame.cells[n]) for n in own}
    entry, arguments = entry_point(e, frame.code, frame.pc, stack, values, cells)
    line = frame.instructions[frame.pc].line or frame.code.co_firstlineno
    code = e.pin(resume_code(frame.code, entry, f"resume_at_{line}"), f"code_of_{frame.code.co_name}")
    namespace = e.pin(frame.namespace, "globals_of_" + str(frame.namespace.get("__name__", "")))
    closure = e.tuple_of([frame.cells[n] for n in frame.code.co_freevars])
    function = f"reconstruct.function({code}, {namespace}, cells={closure})"
    return e.name_value(v, "generator", f"reconstruct.generator(reconstruct.begun({function}({arguments})){names})")


def _partial(e: Emitter, v: PartialV) -> str:
    kwargs = ", ".join(f"{k}={e.expr(a)}" for k, a in v.keywords.items.items())
    parts = ", ".join(p for p in (e.expr(v.function), e.listing(v.args), kwargs) if p)
    made = e.name_value(v, "partial", f"{e.pin(functools.partial)}({parts})")
    e.names.setdefault(id(v.keywords), f"{made}.keywords")
    for name, value in v.attrs.items.items():
        e.line(f"{made}.{name} = {e.expr(value)}")
    return made


def _method(e: Emitter, v: MethodV) -> str:
    if not any("__call__" in vars(cls) for cls in v.function.python_type().__mro__):  # a property, say
        return f"{e.pin(classmethod)}({e.expr(v.function)}).__get__(None, {e.expr(v.owner)})"
    return f"{e.pin(MethodType)}({e.expr(v.function)}, {e.expr(v.owner)})"


def _builtin_method(e: Emitter, v: BuiltinMethodV) -> str:
    name = v.descriptor.__name__
    if class_lookup(v.owner.python_type(), name) is v.descriptor:
        return f"{e.owner(v.owner)}.{name}"
    # ``super()`` found it: the owner's attribute is another one
    return f"{e.pin(v.descriptor)}.__get__({e.expr(v.owner)})"


def _transformed(e: Emitter, v: TransformedV) -> str:
    options = "".join(f", {name}={e.expr(e.m.wrap_result(value))}" for name, value in v.options.items())
    return e.name_value(v, "transformed_function", f"{e.pin(v.base)}({e.expr(v.function)}{options})")


def _made(e: Emitter, v: MadeV) -> str:
    """An object that real code made: made again, then changed as it was."""
    if isinstance(v.recipe, ClassRecipe):
        name = _new_class(e, v, v.recipe)
    else:
        name = e.name_value(v, getattr(v.real, "__name__", type(v.real).__name__).lower(), _call(e, v.recipe))
    for step in v.steps:
        if step.call is not None:
            e.line(_call(e, step.call))
        elif step.value is not None:
            e.line(f"type.__setattr__({name}, {step.name!r}, {e.expr(step.value)})")
        else:
            e.line(f"type.__delattr__({name}, {step.name!r})")
    return name


def _new_class(e: Emitter, v: MadeV, recipe: ClassRecipe) -> str:
    cell = recipe.cell
    if cell is not None and _new_cell(e, cell):
        # its methods refer to the class through the cell, which is filled when there is a class
        e.name_value(cell, "cell", "reconstruct.cell()")
        e.filled_cells.add(id(cell))
    bases = e.tuple_of(recipe.bases)
    namespace = "{" + ", ".join(f"{k!r}: {e.expr(x)}" for k, x in recipe.namespace.items()) + "}"
    keywords = "{" + ", ".join(f"{k!r}: {e.expr(x)}" for k, x in recipe.keywords.items()) + "}"
    quiet = ", quiet=True" if recipe.quiet else ""
    known = e.names.get(id(v))
    if known is not None:
        return known  # a method's cell has led here
    arguments = f"{e.pin(recipe.metaclass)}, {recipe.name!r}, {bases}, {namespace}, {keywords}{quiet}"
    name = e.name_value(v, recipe.name, f"reconstruct.new_class({arguments})")
    if cell is not None and cell.real is None:
        e.line(f"{e.expr(cell)}.cell_contents = {name}")
    return name


def _call(e: Emitter, recipe: Recipe) -> str:
    kwargs = [f"{k}={e.expr(a)}" for k, a in recipe.kwargs.items()]
    return f"{e.pin(recipe.factory)}({', '.join([*map(e.expr, recipe.args), *kwargs])})"


def _or_there(builder: Callable[[Emitter, Any], str]) -> Callable[[Emitter, Any], str]:
    """A builder of values that may have been there before the call, and are reached then."""
    return lambda e, v: e.existing(v) or builder(e, v)


BUILDERS: Builders = (
    (MadeV, _made),
    (SizeV, _size),
    (ConditionV, _condition),
    (NumberV, _number),
    (ConstantV, _constant),
    (TensorV, _or_there(_tensor)),
    (SnapshotV, _snapshot),
    (KnownV, _or_there(_known)),
    (OpaqueV, _or_there(_known)),
    (ArrayV, _array),
    (WeakRefV, lambda e, v: e.name_value(v, "reference", f"{e.pin(weakref.ref)}({e.expr(v.target)})")),
    (SequenceV, _or_there(_sequence)),
    (DictV, _or_there(_dict)),
    (SetV, _or_there(_set)),
    (ExceptionV, _or_there(_exception)),
    (TracebackV, lambda e, v: f"reconstruct.caught({e.expr(v.error)}).__traceback__"),
    (InstanceV, _or_there(_instance)),
    (FunctionV, _function),
    (MethodV, _method),
    (CellV, _or_there(_cell)),
    (PartialV, _or_there(_partial)),
    (TransformedV, _transformed),
    (InferenceV, emit_modes.guard),
    (GuardMethodV, lambda e, v: f"{e.expr(v.owner)}.{v.name}"),
    (SliceV, lambda e, v: f"slice({e.listing(v.parts)})"),
    (TensorMethodV, lambda e, v: f"{e.expr(v.owner)}.{v.name}"),
    (BuiltinMethodV, _or_there(_builtin_method)),
    (DictViewV, lambda e, v: f"{e.expr(v.of)}.{v.kind}()"),
    (SuperV, lambda e, v: f"super({e.pin(v.behind)}, {e.expr(v.owner)})"),
    ((SequenceIterV, RangeIterV, ReversedV, ZipV, MapV, FilterV, EnumerateV), _iterator),
    (GeneratorV, _generator),
)
