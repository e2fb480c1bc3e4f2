"""The entry's source: call the graph, rebuild results, replay side effects once, return or go on in a resume function.

    def transformed(inputs, fetched):
        mul, = graph_0(*fetched)
        return mul

Values are rebuilt from what the entry holds: parameters, what the guards fetched, graph outputs, constants. Nothing is
read through an object that the effects change, so the order of rebuilding does not matter; effects come after it.
"""

from __future__ import annotations

import builtins
import enum
import keyword
import math
import re
import weakref
from collections import OrderedDict
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import torch

from ..records.sources import InstanceDict, Item, Local, Source
from . import emit_modes
from .errors import CannotResume
from .inference import GuardMethodV, InferenceV
from .resume import EntryPoint, Slot, live_cells, live_locals, receiver, resume_code
from .values.arrays import ArrayV
from .values.base import NULL, HandledV, Lazy, Value
from .values.binding import class_lookup
from .values.constant import ConstantV
from .values.containers import CellV, ListV, SequenceV, SetV, SliceV, TupleV
from .values.dicts import DELETED, DictV, DictViewV
from .values.functions import BuiltinMethodV, FunctionV, MethodV, PartialV, SuperV, TensorMethodV, WeakRefV
from .values.hashing import IdentityKey
from .values.instance import ExceptionV, InstanceV
from .values.iterators import DictIterV, EnumerateV, FilterV, GeneratorV, MapV, SequenceIterV, SetIterV, ZipV
from .values.known import KnownV
from .values.made import ClassRecipe, MadeV, Recipe
from .values.number import NumberV
from .values.opaque import OpaqueV
from .values.tensor import TensorV
from .values.transformed import TransformedV

if TYPE_CHECKING:
    from .machine import Machine

LITERALS = (int, str, bytes, bool, type(None), type(Ellipsis))


class Emitter:
    """Collects the body of one entry function."""

    def __init__(self, m: Machine, parameters: tuple[str, ...]) -> None:
        self.m = m
        self.parameters = parameters
        reserved = {"compiled_calls", "fetched", "graph_0", "rebuild", "torch", "transformed"}
        self.parameter_names = {p: identifier(p) + "_" * (p in reserved or hasattr(builtins, p)) for p in parameters}
        self.body: list[str] = []
        self.namespace: dict[str, Any] = {}
        self.outputs: list[TensorV] = []
        self.used: set[str] = {*self.parameter_names.values(), *reserved}
        self.names: dict[int, str] = {}
        self.preferred: dict[int, str] = {}
        self.kept: list[Any] = []
        self.fetch: list[Source] = []
        self.building: set[int] = set()
        self.numbers: list[str] = []  # computed before the graph is called
        self.number_inputs: list[str] = []

    # --- names -----------------------------------------------------------------------------------------------------
    def fresh(self, hint: str) -> str:
        name = identifier(hint)
        number = 0
        while name in self.used or hasattr(builtins, name):
            number += 1
            name = f"{identifier(hint)}_{number}"
        self.used.add(name)
        return name

    def line(self, text: str) -> None:
        self.body.append(text)

    def written_out(self, name: str) -> str:
        """The text of a tuple that was named in case something else holds it, and nothing does; else its name."""
        uses = re.compile(rf"\b{re.escape(name)}\b")
        naming = [line for line in self.body if uses.search(line)]
        if len(naming) != 1 or not naming[0].startswith(f"{name} = ("):
            return name
        self.body.remove(naming[0])
        return naming[0].removeprefix(f"{name} = ")

    def pin(self, real: Any, hint: str = "") -> str:
        """A name of the entry's module for an object that no source reaches."""
        known = self.names.get(id(real))
        if known is not None:
            return known
        twin = self.m.wrapped.get(id(real))
        if twin is not None and (isinstance(twin[1], MadeV) or id(twin[1]) in self.m.stand_ins):
            return self.expr(twin[1])  # it stands for an object made inside
        hint = hint or getattr(real, "__name__", "") or f"a_{type(real).__name__}"
        if getattr(builtins, hint, None) is real:
            return hint
        name = self.fresh(hint)
        self.namespace[name] = real
        self.names[id(real)] = name
        self.kept.append(real)
        return name

    def from_source(self, source: Source) -> str:
        if isinstance(source, Local):
            return self.parameter_names[source.name]
        if isinstance(source, InstanceDict):
            return f"{self.from_source(source.of)}.__dict__"
        if source not in self.fetch:
            self.fetch.append(source)
        return f"fetched[{self.fetch.index(source)}]"

    def number_input(self, value: NumberV) -> None:
        """Hand a number to the graph, after the tensors."""
        self.number_inputs.append(f"rebuild.scalar({self.expr(value)})")

    def prefer(self, values: dict[str, Any]) -> None:
        """Name graph outputs after the user's variables that hold them."""
        self.preferred |= {id(value): name for name, value in values.items()}

    # --- expressions -----------------------------------------------------------------------------------------------
    def expr(self, value: Any) -> str:
        """A Python expression for a value; what must keep its identity is built once and named."""
        if isinstance(value, Lazy):
            if value.source is not None:
                return self.from_source(value.source)
            return self.expr(self.m.wrap_result(value.real))
        named = self.names.get(id(value))
        if named is not None:
            return named
        for kind, builder in BUILDERS:
            if isinstance(value, kind):
                if id(value) in self.building:
                    raise CannotResume("a structure that contains itself")
                self.building.add(id(value))
                try:
                    return builder(self, value)
                finally:
                    self.building.discard(id(value))
        raise CannotResume(f"{value.a()} cannot be rebuilt outside the graph")

    def name_value(self, value: Value, hint: str, text: str) -> str:
        name = self.fresh(hint)
        self.line(f"{name} = {text}")
        self.names[id(value)] = name
        self.kept.append(value)
        return name

    def existing(self, value: Any) -> str | None:
        """How to reach a value that was there before the call."""
        if value.source is not None:
            return self.from_source(value.source)
        if getattr(value, "real", None) is not None:
            return self.pin(value.real)
        return None

    def owner(self, value: Any) -> str:
        """An expression that a dot may follow."""
        text = self.expr(value)
        return f"({text})" if text[0].isdigit() or text[0] == "-" else text

    def listing(self, values: list[Any]) -> str:
        return ", ".join(self.expr(v) for v in values)

    def mapping(self, value: DictV) -> str:
        self_pairs = value.items.items()
        return "{" + ", ".join(f"{self.expr(value.key_value(k))}: {self.expr(v)}" for k, v in self_pairs) + "}"


def identifier(text: str) -> str:
    name = re.sub(r"\W", "_", text)
    if not name or name[0].isdigit():
        name = "_" + name
    return name + "_" if keyword.iskeyword(name) else name


def entry_point(
    e: Emitter, code: CodeType, index: int, stack: list[Any], variables: dict[str, str], cells: dict[str, str]
) -> tuple[EntryPoint, str]:
    """Where a resume function enters ``code``, and its arguments as text.

    ``variables`` and ``cells`` give for each name the text of its value.
    """
    slots = [_slot(stack, n) for n in range(len(stack))]
    caught = []
    for n, slot in enumerate(stack):
        if isinstance(slot, HandledV):
            if slot.star:
                raise CannotResume("a graph break inside `except*`")
            error = e.expr(slot.error)
            same = (v for v, text in variables.items() if text == error and v not in code.co_cellvars)
            caught += [(n, name) for name in same]
    passed = {name: text for name, text in variables.items() if name not in {name for _, name in caught}}
    arguments = [slot_text(e, v) for v, slot in zip(stack, slots) if slot in (Slot.VALUE, Slot.HANDLED)]
    first = receiver(code)
    if first in cells:
        arguments.insert(0, f"{cells[first]}.cell_contents")
    elif first in passed:
        arguments.insert(0, passed.pop(first))
    else:
        first = ""
    entry = EntryPoint(index, tuple(slots), tuple(passed), tuple(cells), tuple(caught), first)
    return entry, ", ".join([*arguments, *cells.values(), *passed.values()])


def _slot(stack: list[Any], n: int) -> Slot:
    """How a resume function's prologue restores a stack slot."""
    value, below = stack[n], stack[n - 1] if n else None
    if value is NULL:
        return Slot.NULL
    if isinstance(below, HandledV) and below.error is value:
        return Slot.CAUGHT
    return Slot.HANDLED if isinstance(value, HandledV) else Slot.VALUE


def slot_text(e: Emitter, slot: Value | str) -> str:
    """A stack slot as argument of a resume function."""
    return slot if isinstance(slot, str) else e.expr(slot.error if isinstance(slot, HandledV) else slot)


# --- one builder per kind ---------------------------------------------------------------------------------------------
def _constant(e: Emitter, v: ConstantV) -> str:
    real = v.value
    if type(real) in LITERALS:
        return "..." if real is Ellipsis else repr(real)
    if type(real) is float and math.isfinite(real):
        return repr(real)
    if type(real) is float:
        return f"float({str(real)!r})"
    if isinstance(real, (torch.dtype, torch.layout, torch.memory_format)):
        return str(real)
    if isinstance(real, torch.device):
        return f"torch.device({str(real)!r})"
    if type(real) is slice:
        return repr(real)
    if isinstance(real, enum.Enum) and isinstance(made := e.m.wrap_known(type(real)), MadeV):
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
    e.numbers.append(f"{name} = {text}" if kind is str else f"{name} = rebuild.number({text}, {kind.__name__})")
    e.names[id(v)] = name
    e.kept.append(v)
    return name


def _tensor(e: Emitter, v: TensorV) -> str:
    existing = e.existing(v)
    if existing is not None:
        return existing
    name = e.fresh(e.preferred.get(id(v), v.node.name))
    e.names[id(v)] = name
    e.outputs.append(v)
    return name


def _known(e: Emitter, v: KnownV) -> str:
    return e.existing(v) or e.pin(v.real)


def _sequence(e: Emitter, v: SequenceV) -> str:
    existing = e.existing(v)
    if existing is not None:
        return existing
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
    text = f"[{items}]" if v.maxlen is None else f"[{items}], {v.maxlen}"
    return e.name_value(v, "a_list", text if v.cls is list else f"{e.pin(v.cls)}({text})")


def _dict(e: Emitter, v: DictV) -> str:
    existing = e.existing(v)
    if existing is not None:
        return existing
    text = e.mapping(v)
    if v.default_factory is not None:
        text = f"{e.pin(v.cls)}({e.expr(v.default_factory)}, {text})"
    elif v.cls is not dict:
        text = f"{e.pin(v.cls)}({text})"
    name = e.name_value(v, "a_dict", text)
    for attribute, value in v.attrs.items():
        e.line(f"setattr({name}, {attribute!r}, {e.expr(value)})")
    return name


def _set(e: Emitter, v: SetV) -> str:
    existing = e.existing(v)
    if existing is not None:
        return existing
    return e.name_value(v, "a_set", f"{v.cls.__name__}([{e.listing(v.in_order())}])")


def _exception(e: Emitter, v: ExceptionV) -> str:
    existing = e.existing(v)
    if existing is not None:
        return existing
    name = e.name_value(v, "error", _exception_text(e, v))
    for slot, value in v.slots.items():
        e.line(f"{name}.{slot} = {e.expr(value)}")
    return name


def _exception_text(e: Emitter, v: ExceptionV) -> str:
    attributes = e.mapping(v.attrs) if v.attrs is not None else "{}"
    if v.group is not None:
        return f"rebuild.group({e.pin(v.cls)}, {e.listing([*v.group, TupleV(v.args)])}, {attributes})"
    if v.raised is not None and attributes == "{}":
        return f"rebuild.raised({e.pin(v.raised)})"
    items = e.listing(v.args)
    if attributes == "{}" and not isinstance(class_lookup(v.cls, "__init__"), FunctionType):
        return f"{e.pin(v.cls)}({items})"
    return f"rebuild.exception({e.pin(v.cls)}, ({items}{',' if v.args else ''}), {attributes})"


def _instance(e: Emitter, v: InstanceV) -> str:
    existing = e.existing(v)
    if existing is not None:
        return existing
    if v.cls is object:
        return e.name_value(v, "an_object", "object()")
    name = e.fresh(v.cls.__name__.lower())
    immutable = issubclass(v.cls, (tuple, str, int, float, bytes, frozenset))
    head = f"rebuild.instance({e.pin(v.cls)}"
    if immutable and v.payload is not None:
        head += f", items={_payload(e, v.payload)}"
    # named before its content is built: an object may refer to itself
    e.line(f"{name} = {head})")
    e.names[id(v)] = name
    e.kept.append(v)
    content = [e.mapping(v.attrs)] if v.attrs is not None and v.attrs.items else []
    if v.payload is not None and not immutable:
        content.append(f"items={_payload(e, v.payload)}")
    if v.slots:
        content.append("slots={" + ", ".join(f"{k!r}: {e.expr(s)}" for k, s in v.slots.items()) + "}")
    if content:
        e.line(f"rebuild.fill({name}, {', '.join(content)})")
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
    existing = e.existing(v)
    if existing is not None:
        return existing
    name = e.name_value(v, "cell", "rebuild.cell()")
    if v.content is not None:
        e.line(f"{name}.cell_contents = {e.expr(v.content)}")
    return name


def _function(e: Emitter, v: FunctionV) -> str:
    code = e.pin(v.code, f"code_of_{v.code.co_name}")
    parts = [code, e.pin(v.namespace, "globals_of_" + str(v.namespace.get("__name__", "")))]
    parts.append(f"({e.listing(v.defaults)}{',' if v.defaults else ''})")
    parts.append("{" + ", ".join(f"{k!r}: {e.expr(d)}" for k, d in v.kwdefaults.items()) + "}")
    # the function is named after its cells: a recursive inner function is in its own cell
    cells = [e.name_value(c, "cell", "rebuild.cell()") if _new_cell(e, c) else e.expr(c) for c in v.closure]
    parts.append(f"({', '.join(cells)}{',' if cells else ''})")
    if v.attrs.items:
        parts.append(e.mapping(v.attrs))
    if v.annotations is not None and v.annotations.items:
        parts.append(f"annotations={e.mapping(v.annotations)}")
    name = e.name_value(v, v.code.co_name, f"rebuild.function({', '.join(parts)})")
    for cell, cell_name in zip(v.closure, cells):
        if cell.real is None and cell.content is not None and id(cell) not in e.m.filled_cells:
            e.m.filled_cells.add(id(cell))
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
    return e.name_value(v, "array", f"rebuild.array_view({e.expr(v.root)}, {e.pin(v.array.dtype)}, {layout})")


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
        if v.index >= 0 and len(v.keys) == len(v.view.of.items) and id(v.view.of) not in e.m.mutated:
            return e.name_value(v, "iterator", f"rebuild.advanced({e.expr(v.view)}, {v.index})")
        raise CannotResume("an iterator over a dictionary that was changed, across a graph break")
    if isinstance(v, SetIterV) and v.size != len(v.of.items):
        raise CannotResume("an iterator over a set that was changed, across a graph break")
    if isinstance(v, SetIterV) and v.of.known_order() and id(v.of) not in e.m.mutated:
        return e.name_value(v, "iterator", f"rebuild.advanced({e.expr(v.of)}, {v.index})")
    if isinstance(v, SequenceIterV) and isinstance(v.items, SequenceV):
        return e.name_value(v, "iterator", f"rebuild.advanced({e.expr(v.items)}, {v.index})")
    if isinstance(v, SequenceIterV):
        return e.name_value(v, "iterator", f"rebuild.rest([{e.listing(v.rest(e.m))}])")
    raise CannotResume(f"{v.a()} across a graph break")


def _generator(e: Emitter, v: GeneratorV) -> str:
    """A suspended generator: its code entered where it is suspended, with its variables."""
    frame = v.frame
    if v.done:
        return e.name_value(v, "generator", "rebuild.rest(())")
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
    closure = e.listing([frame.cells[n] for n in frame.code.co_freevars])
    function = f"rebuild.function({code}, {namespace}, cells=({closure}{',' if closure else ''}))"
    return e.name_value(v, "generator", f"rebuild.generator({function}({arguments}))")


def _partial(e: Emitter, v: PartialV) -> str:
    existing = e.existing(v)
    if existing is not None:
        return existing
    kwargs = ", ".join(f"{k}={e.expr(a)}" for k, a in v.kwargs.items())
    parts = ", ".join(p for p in (e.expr(v.function), e.listing(v.args), kwargs) if p)
    import functools

    made = e.name_value(v, "partial", f"{e.pin(functools.partial)}({parts})")
    for name, value in v.attrs.items.items():
        e.line(f"{made}.{name} = {e.expr(value)}")
    return made


def _method(e: Emitter, v: MethodV) -> str:
    import types

    return f"{e.pin(types.MethodType)}({e.expr(v.function)}, {e.expr(v.owner)})"


def _builtin_method(e: Emitter, v: BuiltinMethodV) -> str:
    existing = e.existing(v)
    if existing is not None:
        return existing
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
        e.name_value(cell, "cell", "rebuild.cell()")
        e.m.filled_cells.add(id(cell))
    bases = f"({e.listing(recipe.bases)}{',' if recipe.bases else ''})"
    namespace = "{" + ", ".join(f"{k!r}: {e.expr(x)}" for k, x in recipe.namespace.items()) + "}"
    keywords = "{" + ", ".join(f"{k!r}: {e.expr(x)}" for k, x in recipe.keywords.items()) + "}"
    quiet = ", quiet=True" if recipe.quiet else ""
    known = e.names.get(id(v))
    if known is not None:
        return known  # a method's cell has led here
    arguments = f"{e.pin(recipe.metaclass)}, {recipe.name!r}, {bases}, {namespace}, {keywords}{quiet}"
    name = e.name_value(v, recipe.name, f"rebuild.new_class({arguments})")
    if cell is not None and cell.real is None:
        e.line(f"{e.expr(cell)}.cell_contents = {name}")
    return name


def _call(e: Emitter, recipe: Recipe) -> str:
    kwargs = [f"{k}={e.expr(a)}" for k, a in recipe.kwargs.items()]
    return f"{e.pin(recipe.factory)}({', '.join([*map(e.expr, recipe.args), *kwargs])})"


BUILDERS: tuple[tuple[Any, Callable[[Emitter, Any], str]], ...] = (
    (MadeV, _made),
    (NumberV, _number),
    (ConstantV, _constant),
    (TensorV, _tensor),
    (KnownV, _known),
    (OpaqueV, _known),
    (ArrayV, _array),
    (WeakRefV, lambda e, v: e.name_value(v, "reference", f"{e.pin(weakref.ref)}({e.expr(v.target)})")),
    (SequenceV, _sequence),
    (DictV, _dict),
    (SetV, _set),
    (ExceptionV, _exception),
    (InstanceV, _instance),
    (FunctionV, _function),
    (MethodV, _method),
    (CellV, _cell),
    (PartialV, _partial),
    (TransformedV, _transformed),
    (InferenceV, emit_modes.guard),
    (GuardMethodV, lambda e, v: f"{e.expr(v.owner)}.{v.name}"),
    (SliceV, lambda e, v: f"slice({e.listing(v.parts)})"),
    (TensorMethodV, lambda e, v: f"{e.expr(v.owner)}.{v.name}"),
    (BuiltinMethodV, _builtin_method),
    (DictViewV, lambda e, v: f"{e.expr(v.of)}.{v.kind}()"),
    (SuperV, lambda e, v: f"super({e.pin(v.cls)}, {e.expr(v.owner)})"),
    ((SequenceIterV, ZipV, MapV, FilterV, EnumerateV), _iterator),
    (GeneratorV, _generator),
)


# --- effects ----------------------------------------------------------------------------------------------------------
def emit_effects(e: Emitter) -> None:
    """Replay what was written to objects that existed before the call, in order of the first write."""
    statements: list[str] = []
    for value in list(e.m.mutated.values()):
        for kind, writer in WRITERS:
            if isinstance(value, kind):
                statements += writer(e, value)
                break
    for (_, name), (owner, value) in e.m.overlays.items():
        statements.append(f"setattr({e.expr(owner)}, {name!r}, {e.expr(value)})")
    for (module, name), value in e.m.written_globals.items():
        table = e.pin(e.m.namespace_of(module), "globals_of_" + (module or "function"))
        statements.append(f"{table}[{name!r}] = {e.expr(value)}")
    e.body += [*statements, *emit_modes.left(e)]


def unchanged(e: Emitter, value: Any, place: Source | None, original: Any) -> bool:
    """Whether ``value`` is what stands at ``place`` at every call that the guards let in."""
    if place is None:
        return isinstance(value, Lazy) and value.source is None and value.real is original
    if value.source == place:
        return True
    plain = isinstance(value, ConstantV) and not isinstance(value, NumberV) and isinstance(value.value, LITERALS)
    return plain and type(value.value) is type(original) and e.m.guarded(place, "constant", value.value)


def _at(container: Value, key: Any) -> Source | None:
    return Item(container.source, key) if container.source is not None else None


def _write_list(e: Emitter, v: ListV) -> list[str]:
    if v.machine is not None:
        added = e.listing(v.tail)
        return [f"{e.existing(v)}.append({added})" if len(v.tail) == 1 else f"{e.existing(v)}.extend([{added}])"]
    real = list(v.real)
    if len(real) == len(v.items) and all(unchanged(e, a, _at(v, n), b) for n, (a, b) in enumerate(zip(v.items, real))):
        return []
    target = e.existing(v)
    items = e.listing(v.items)
    if v.cls is not list:
        return [f"{target}.clear()", f"{target}.extend([{items}])"]
    if type(v.real) is not list:
        return [f"list.__setitem__({target}, slice(None), [{items}])"]
    return [f"{target}[:] = [{items}]"]


def _write_dict(e: Emitter, v: DictV) -> list[str]:
    real = v.real
    target = e.existing(v)
    exact = type(real) is dict
    plain = e.pin(OrderedDict) if isinstance(real, OrderedDict) else "dict"
    statements = []
    deleted = [k for k in real if (v.items.get(k, DELETED if v.complete else None)) is DELETED]
    kept = [k for k in real if k not in deleted]
    written = [k for k in v.items if v.items[k] is not DELETED]
    if v.complete and written[: len(kept)] != kept:
        # the order of keys changed: start over
        statements.append(f"{target}.clear()")
        deleted, real = [], {}
    for key in deleted:
        statements.append(f"del {target}[{e.expr(v.key_value(key))}]")
    for key in written:
        value = v.items[key]
        if isinstance(key, IdentityKey) or key not in real or not unchanged(e, value, _at(v, key), real[key]):
            name, text = e.expr(v.key_value(key)), e.expr(value)
            statements.append(
                f"{target}[{name}] = {text}" if exact else f"{plain}.__setitem__({target}, {name}, {text})"
            )
    return statements


def _write_set(e: Emitter, v: SetV) -> list[str]:
    target = e.existing(v)
    if v.items.keys() == set(v.real):
        return []
    return [f"{target}.clear()", f"{target}.update([{e.listing(list(v.items.values()))}])"]


def _write_cell(e: Emitter, v: CellV) -> list[str]:
    if not v.written or isinstance(v.content, Lazy):
        return []
    target = e.existing(v)
    return [f"{target}.cell_contents = {e.expr(v.content)}" if v.content is not None else f"del {target}.cell_contents"]


def _write_slots(e: Emitter, v: InstanceV) -> list[str]:
    target = e.existing(v)
    return [f"object.__setattr__({target}, {name!r}, {e.expr(value)})" for name, value in v.slots.items()]


WRITERS: tuple[tuple[Any, Callable[[Emitter, Any], list[str]]], ...] = (
    (ListV, _write_list),
    (DictV, _write_dict),
    (SetV, _write_set),
    (CellV, _write_cell),
    (InstanceV, _write_slots),
)
