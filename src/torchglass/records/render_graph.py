"""Prints an FX graph as a Python module that runs: the text that is read is the text that runs.

Input: a ``torch.fx.GraphModule``, at torch level or at ATen level. Output: source with a function ``forward`` equal to
the graph, the user's lines as comments, and a main block that makes inputs of the right shapes::

    def forward(
        x,  # float32[3, 4]
    ):
        # model.py:7 in f: return x.cos().cos()
        cos = aten.cos.default(x)  # float32[3, 4]
        cos_1 = aten.cos.default(cos); del cos  # float32[3, 4]
        return (cos_1,)

A sub-graph that a node calls is a function above ``forward``. What no text can say (a large constant, a function of
the user's) is a global of the module that whoever loads the file sets: ``Rendered.objects``.
"""

from __future__ import annotations

import builtins
import linecache
import math
import operator
import os
import re
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F

from ..aten.sizes import hints
from ..bytecode.operators import BINARY, COMPARE, UNARY
from ..torch_compat import PRIVATE_HOMES, OpOverload, OpOverloadPacket
from . import own_operators
from .compilation import NodeRow
from .literals import is_name, literal, one_line, overload_text, tensor_text
from .origin import UNKNOWN, Origin
from .sizes import symbol_name, symbols
from .sizes import text as size_text
from .symbolic_ints import SizesUnfit, float_of, lies_contiguous, size_of, sizes_within


@dataclass(frozen=True)
class Rendered:
    """The module's text, and the objects that its globals of the same names must be set to before it is called."""

    text: str
    objects: dict[str, Any] = field(default_factory=dict)
    nodes: tuple[NodeRow, ...] = ()


BEGINS = "begins"
"""A key of ``node.meta``: what begins with the node, as a comment says it."""


def render_graph(gm: torch.fx.GraphModule, title: str) -> str:
    """The text alone; see ``render``."""
    return render(gm, title).text


def render(gm: torch.fx.GraphModule, title: str) -> Rendered:
    """``gm`` as a module; ``title`` opens its docstring. Every value a node may hold is rendered or becomes an
    object.
    """
    return _Printer(gm).module(title)


def load(rendered: Rendered, filename: str = "<graph>") -> Any:
    """The ``forward`` function of a rendered graph, from memory (the runtime loads the file instead)."""
    namespace: dict[str, Any] = {"__name__": "rendered_graph"}
    exec(compile(rendered.text, filename, "exec"), namespace)
    namespace.update(rendered.objects)
    return namespace["forward"]


# --- callables and constants -----------------------------------------------------------------------------------------
TEMPLATES = {row.function: row.template for row in (*BINARY.values(), *COMPARE.values(), *UNARY.values())}
"""Operators as text, with a hole for each operand."""

HOMES: tuple[tuple[str, Any], ...] = (
    ("torch", torch),
    ("F", F),
    ("operator", operator),
    ("math", math),
    ("torch.Tensor", torch.Tensor),
    ("torch.special", torch.special),
    ("torch.linalg", torch.linalg),
    ("torch.fft", torch.fft),
    ("torch.amp.autocast_mode", torch.amp.autocast_mode),
    *PRIVATE_HOMES,
)
"""Where a callable is looked for, by its name, before it becomes an object of the module."""


def path_of(target: Any) -> str | None:
    """An expression for a callable or type of torch, operator, math or builtins; None where there is none."""
    if isinstance(target, OpOverload):
        return overload_text(target).replace("torch.ops.aten.", "aten.")
    if isinstance(target, OpOverloadPacket):
        return "torch.ops." + target._qualified_op_name.replace("::", ".")
    ours = own_operators.path_of(target)
    if ours is not None:
        return ours
    name = getattr(target, "__name__", "")
    if not isinstance(name, str) or not is_name(name):
        return None
    for prefix, home in HOMES:
        if getattr(home, name, None) is target:
            return f"{prefix}.{name}"
    if getattr(builtins, name, None) is target:
        return name
    return _dotted(target)


def _dotted(target: Any) -> str | None:
    """``torch.nn.attention.sdpa_kernel`` and the like: by module and qualified name, if that leads back to the
    object.
    """
    module, qualified = getattr(target, "__module__", None), getattr(target, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(qualified, str) or not module.startswith("torch"):
        return None
    found: Any = torch
    for part in [*module.split(".")[1:], *qualified.split(".")]:
        found = getattr(found, part, None)
    return f"{module}.{qualified}" if found is target else None


def constant(value: Any) -> str | None:
    """An expression for a plain constant; None for containers and for what has none."""
    text = literal(value)
    if text is None and (isinstance(value, type) or callable(value)):
        text = path_of(value)
    return text


def describe(value: Any) -> str:
    """A tensor in a comment: ``float32[4, 8]``, with strides where it is not contiguous; a type's name for the rest."""
    if not isinstance(value, torch.Tensor):
        if isinstance(value, (tuple, list)):
            return f"({', '.join(map(describe, value))})"
        return repr(value) if isinstance(value, (int, float, str, type(None))) else type(value).__name__
    text = f"{str(value.dtype)[6:]}{list(value.shape)}"
    if value.layout is not torch.strided:
        return f"{text} {value.layout}"
    if not lies_contiguous(value):
        text += f" strides {tuple(value.stride())}"
    return text if value.device.type == "cpu" else f"{text} {value.device}"


# --- the module -------------------------------------------------------------------------------------------------------
RESERVED = frozenset(
    {"torch", "aten", "F", "operator", "math", *own_operators.MODULES, "forward", "tensor", "example_inputs"}
    | set(dir(builtins))
)

HEAD = """import math
import operator

import torch
import torch.nn.functional as F

{import_}
aten = torch.ops.aten
"""

TAIL = '''

def tensor(shape, strides, dtype, device="cpu"):
    """A tensor of this layout: random numbers, 0 or 1 where they are integers."""
    extent = 1 + sum((n - 1) * step for n, step in zip(shape, strides)) if 0 not in shape else 0
    if dtype.is_floating_point or dtype.is_complex:
        values = torch.rand(extent, device=device).to(dtype)
    else:
        values = torch.randint(0, 2, (extent,), device=device).to(dtype)
    return values.as_strided(shape, strides)


def example_inputs():
    return [
{inputs}    ]


if __name__ == "__main__":
'''

ALONE = """    for result in forward(*example_inputs()):
        print(tuple(result.shape) if isinstance(result, torch.Tensor) else result)
"""

_NOT_ALONE = "this file does not run alone: {} is made by the program that compiled it; full_code.py runs it there"


class _Printer:
    """Prints the function of one graph; printers of sub-graphs share with that of ``within`` what the module has."""

    def __init__(self, gm: torch.fx.GraphModule, name: str = "forward", within: _Printer | None = None) -> None:
        self.gm = gm
        self.name = name
        self.nodes = list(gm.graph.nodes)
        # of the module: name -> object, its line; names of objects that the text cannot make, and those of them that
        # are no tensors, without which it does not run alone; path -> short name; names of globals; functions' texts
        self.objects: dict[str, Any] = within.objects if within else {}
        self.declared: dict[str, str] = within.declared if within else {}
        self.unsaid: list[str] = within.unsaid if within else []
        self.absent: list[str] = within.absent if within else []
        self.files: dict[str, str] = within.files if within else {}
        self.shared: set[str] = within.shared if within else {*RESERVED, *_names_within(gm)}
        self.functions: list[str] = within.functions if within else []
        self.taken: set[str] = set(RESERVED)
        self.names: dict[torch.fx.Node, str] = {}
        self.shapes: dict[torch.fx.Node, str] = {}
        self.statements: dict[torch.fx.Node, tuple[str, int]] = {}  # text, and position in the body
        for node in self.nodes:
            sub_graph = sub_graph_of(gm, node)
            self.names[node] = self._free(node.name) if sub_graph is None else self._function_of(node, sub_graph)

    def module(self, title: str) -> Rendered:
        body = self._body()
        functions = "".join(f"\n\n{function}\n" for function in self.functions)
        places = "".join(
            f"\n    {one_line(f'{short} = {full}')}" for full, short in self.files.items() if short != full
        )
        legend = f"\n\nFiles named below:{places}\n" if places else ""
        lines = [*self.declared.values(), *([f"SET_BY_LOADER = {tuple(self.unsaid)!r}"] if self.unsaid else [])]
        globals_ = "".join(f"{line}\n" for line in lines)
        start = HEAD.replace("{import_}", self._imports_ours())
        head = f'"""{title}{legend}"""\n\n{start}{globals_}{functions}\n\n{self._signature()}\n'
        alone = f"    raise SystemExit({_NOT_ALONE.format(', '.join(self.absent))!r})\n" if self.absent else ALONE
        text = head + "\n".join(body) + "\n" + TAIL.replace("{inputs}", self._inputs()) + alone
        return Rendered(text, self.objects, self._rows(head.count("\n") + 1))

    def _imports_ours(self) -> str:
        lines = own_operators.imports([path for path in map(own_operators.path_of, targets_within(self.gm)) if path])
        return "".join(["\n", *lines]) if lines else ""

    def _free(self, wanted: str, taken: set[str] | None = None) -> str:
        name = wanted if is_name(wanted) else "v_" + re.sub(r"[^a-zA-Z0-9_]", "_", wanted)
        taken = self.taken if taken is None else taken
        while name in taken:
            name += "_"
        taken.add(name)
        return name

    def _function_of(self, node: torch.fx.Node, graph: torch.fx.GraphModule) -> str:
        """The name of a sub-graph's function, whose text is printed with it."""
        wanted = str(node.target) if self.name == "forward" else f"{self.name}_{node.target}"
        name = wanted if wanted not in self.shared else self._free(wanted, self.shared)
        self.shared.add(name)
        self.taken.add(name)
        printer = _Printer(graph, name, self)
        self.functions.append("\n".join([printer._signature(), *printer._body()]))
        return name

    # --- inputs -------------------------------------------------------------------------------------------------------
    def _placeholders(self) -> list[torch.fx.Node]:
        return [node for node in self.nodes if node.op == "placeholder"]

    def _signature(self) -> str:
        lines = []
        for node in self._placeholders():
            shape = self._shape(node)
            lines.append(f"    {self.names[node]}," + (f"  # {shape}" if shape else ""))
        return f"def {self.name}(\n" + "\n".join(lines) + "\n):" if lines else f"def {self.name}():"

    def _inputs(self) -> str:
        lines = []
        for node in self._placeholders():
            value = _value(node)
            if isinstance(value, torch.Tensor):
                layout = f"{tuple(hints(value.shape))}, {tuple(hints(value.stride()))}"
                made = f"tensor({layout}, {value.dtype}"
                made += ")" if value.device.type == "cpu" else f", {str(value.device)!r})"
                made += ".requires_grad_()" if value.requires_grad else ""
            else:
                made = repr(value)
            lines.append(f"        {made},  # {self.names[node]}\n")
        return "".join(lines)

    # --- statements ---------------------------------------------------------------------------------------------------
    def _body(self) -> list[str]:
        unread = set(symbols(size for node in self.nodes for size in sizes_within((node.args, node.kwargs))))
        lines = [f"    {read}" for node in self._placeholders() for read in self._size_reads(node, unread)]
        dying = self._last_reads()
        before: Origin | None = None
        for node in self.nodes:
            if node.op == "placeholder" or sub_graph_of(self.gm, node) is not None:
                continue
            origin = _origin(node)
            if BEGINS in node.meta:
                lines.append(f"    # --- {one_line(node.meta[BEGINS])} ---")
                before = None
            if origin is not None and origin != before and node.op != "output":
                lines.append(f"    # {self._place(origin)}")
                before = origin
            statement = self._statement(node)
            self.statements[node] = (statement, len(lines))
            statement = "; ".join((statement, *self._size_reads(node, unread)))
            dead = ", ".join(self.names[n] for n in dying.get(node, ()))
            comment = f"  # {self._shape(node)}" if node.op != "output" and self._shape(node) else ""
            lines.append(f"    {statement}" + (f"; del {dead}" if dead else "") + comment)
        if unread:
            raise SizesUnfit(f"no tensor of a graph has the sizes {', '.join(sorted(unread))}")
        return lines

    def _size_reads(self, node: torch.fx.Node, unread: set[str]) -> list[str]:
        """What reads sizes that the graph leaves open off a value; they leave ``unread``."""
        value = _value(node)
        reads: list[str] = []
        for dim, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            name = symbol_name(size_of(size))
            if name in unread:
                unread.remove(name)
                reads.append(f"{name} = {self.names[node]}.shape[{dim}]")
        return reads

    def _rows(self, first: int) -> tuple[NodeRow, ...]:
        """The nodes for reports; ``first`` is the line of the file where the body begins."""
        rows = []
        for node in self.nodes:
            name = self.names[node]
            statement, position = self.statements.get(node, (name, -first))
            inputs = tuple(self.names[n] for n in node.all_input_nodes)
            origin = _origin(node) or UNKNOWN
            rows.append(NodeRow(name, node.op, statement, inputs, self._shape(node), first + position, origin))
        return tuple(rows)

    def _shape(self, node: torch.fx.Node) -> str:
        """The value a node carries, described; '' where it carries none."""
        if node not in self.shapes:
            value = _value(node)
            self.shapes[node] = "" if value is None else describe(value)
        return self.shapes[node]

    def _last_reads(self) -> dict[torch.fx.Node, list[torch.fx.Node]]:
        """Which values nobody reads after a node: they are deleted there, so memory is free as early as in eager."""
        last: dict[torch.fx.Node, torch.fx.Node] = {}
        for node in self.nodes:
            if node.op not in ("placeholder", "get_attr", "output") and not self._assigns_nothing(node):
                last[node] = node
            for operand in node.all_input_nodes:
                if operand in last:
                    last[operand] = node
        dying: dict[torch.fx.Node, list[torch.fx.Node]] = {}
        for operand, reader in last.items():
            if reader.op != "output":
                dying.setdefault(reader, []).append(operand)
        return dying

    def _assigns_nothing(self, node: torch.fx.Node) -> bool:
        return node.target is operator.setitem and not node.users

    def _statement(self, node: torch.fx.Node) -> str:
        if node.op == "output":
            return f"return {self._value(node.args[0])}"
        if self._assigns_nothing(node):
            target, index, value = node.args
            return f"{self._value(target)}[{self._index(index)}] = {self._value(value)}"
        return f"{self.names[node]} = {self._expression(node)}"

    def _expression(self, node: torch.fx.Node) -> str:
        if node.op == "get_attr":
            value: Any = self.gm
            for part in str(node.target).split("."):
                value = getattr(value, part)
            return self._object(str(node.target).replace(".", "_"), value)
        if node.op == "call_method":
            return f"{self._operand(node.args[0], True)}.{node.target}({self._arguments(node.args[1:], node.kwargs)})"
        if node.op == "call_module":
            name = self._object(str(node.target).replace(".", "_"), self.gm.get_submodule(str(node.target)))
            return f"{name}({self._arguments(node.args, node.kwargs)})"
        return self._function(node)

    def _function(self, node: torch.fx.Node) -> str:
        target: Any = node.target
        args = node.args
        if not node.kwargs:
            if target in TEMPLATES:
                return TEMPLATES[target].format(*map(self._operand, args))
            if target is operator.getitem and len(args) == 2:
                return f"{self._operand(args[0])}[{self._index(args[1])}]"
            if target is getattr and len(args) == 2 and isinstance(args[1], str) and is_name(args[1]):
                return f"{self._operand(args[0], True)}.{args[1]}"
        path = path_of(target) or self._object(getattr(target, "__name__", "function"), target)
        return f"{path}({self._arguments(args, node.kwargs)})"

    # --- values -------------------------------------------------------------------------------------------------------
    def _arguments(self, args: Any, kwargs: dict[str, Any]) -> str:
        named = [f"{name}={self._value(value)}" for name, value in kwargs.items() if is_name(name)]
        others = {name: value for name, value in kwargs.items() if not is_name(name)}
        unnamed = ["**{" + ", ".join(f"{name!r}: {self._value(value)}" for name, value in others.items()) + "}"]
        return ", ".join([*map(self._value, args), *named, *(unnamed if others else [])])

    def _operand(self, value: Any, before_dot: bool = False) -> str:
        """A value beside an operator or a dot: what is neither a name nor a positive number gets brackets."""
        text = self._value(value)
        return text if text.isidentifier() or (text[0].isdigit() and not before_dot) else f"({text})"

    def _value(self, value: Any) -> str:
        if isinstance(value, torch.fx.Node):
            return self.names[value]
        if isinstance(value, slice):
            return f"slice({self._value(value.start)}, {self._value(value.stop)}, {self._value(value.step)})"
        if isinstance(value, list):
            return f"[{', '.join(map(self._value, value))}]"
        if isinstance(value, tuple):
            inner = ", ".join(map(self._value, value))
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{self._value(k)}: {self._value(v)}" for k, v in value.items()) + "}"
        if isinstance(value, torch.SymInt):
            return size_text(size_of(value))
        if isinstance(value, torch.SymFloat):
            return str(float_of(value))
        text = constant(value)
        return self._object(f"{type(value).__name__.lower()}_constant", value) if text is None else text

    def _index(self, index: Any) -> str:
        """What stands between the brackets of a subscript: ``:, 0, None, 1:2``."""
        if isinstance(index, tuple) and index:
            return ", ".join(map(self._index_item, index)) + ("," if len(index) == 1 else "")
        return self._index_item(index)

    def _index_item(self, item: Any) -> str:
        if not isinstance(item, slice):
            return self._value(item)
        start, stop, step = ("" if part is None else self._value(part) for part in (item.start, item.stop, item.step))
        return f"{start}:{stop}:{step}" if step else f"{start}:{stop}"

    def _object(self, wanted: str, value: Any) -> str:
        """The global that stands for an object; small tensors are written out in full as well."""
        for name, known in self.objects.items():
            if known is value:
                return name
        name = self._free(wanted, self.shared)
        self.objects[name] = value
        if isinstance(value, torch.Tensor) and value.numel() <= 64 and value.layout is torch.strided:
            written = tensor_text(value)
        elif isinstance(value, torch.Tensor):
            self.unsaid.append(name)
            written = f"torch.zeros({tuple(value.shape)}, dtype={value.dtype})  # set by whoever loads this file"
        else:
            self.unsaid.append(name)
            self.absent.append(name)
            written = f"None  # {_kind(value)}: set by whoever loads this file"
        shown = str(getattr(value, "shown", "")).strip()
        self.declared[name] = "\n".join((f"{name} = {written}", *(f"#   {line}" for line in shown.splitlines())))
        return name

    def _place(self, origin: Origin) -> str:
        """``model.py:12 in forward: x = self.linear(x)``; the docstring says where model.py lies."""
        if origin.file not in self.files:
            short = os.path.basename(origin.file) or origin.file
            if short in self.files.values():
                short = os.path.join(os.path.basename(os.path.dirname(origin.file)), short)
            self.files[origin.file] = short
        line = linecache.getline(origin.file, origin.line).strip()
        return one_line(f"{self.files[origin.file]}:{origin.line} in {origin.function}" + (f": {line}" if line else ""))


def sub_graph_of(gm: torch.fx.GraphModule, node: torch.fx.Node) -> torch.fx.GraphModule | None:
    """The graph that a node stands for, if it does: an attribute of the graph module that another node calls."""
    if node.op != "get_attr":
        return None
    value: Any = gm
    for part in str(node.target).split("."):
        value = getattr(value, part)
    return value if isinstance(value, torch.fx.GraphModule) else None


def targets_within(gm: torch.fx.GraphModule) -> list[Any]:
    """The functions that a graph and its sub-graphs call."""
    graphs = [module.graph for module in gm.modules() if isinstance(module, torch.fx.GraphModule)]
    return [node.target for graph in graphs for node in graph.nodes if node.op == "call_function"]


def _names_within(gm: torch.fx.GraphModule) -> set[str]:
    """Names of all values of a graph and its sub-graphs, which functions and objects of the module must not have."""
    names: set[str] = set()
    for node in gm.graph.nodes:
        sub_graph = sub_graph_of(gm, node)
        names |= {node.name} if sub_graph is None else _names_within(sub_graph)
    return names


def _kind(value: Any) -> str:
    """A word on an object that is the same from run to run and runs none of its code."""
    named = value if isinstance(getattr(value, "__qualname__", None), str) else type(value)
    return f"{getattr(named, '__module__', '')}.{named.__qualname__}"


def _value(node: torch.fx.Node) -> Any:
    """The example value a node carries: autodiff's or capture's fake tensor."""
    value = node.meta.get("val")
    return node.meta.get("example_value") if value is None else value


def _origin(node: torch.fx.Node) -> Origin | None:
    origin = node.meta.get("origin")
    return origin if isinstance(origin, Origin) and origin.line > 0 else None
