"""Graphs as torch.compile prints them, made into files that run alone.

Input: ``class <lambda>(torch.nn.Module): def forward(self, arg0_1: "f32[4][1]cpu")…``.  Output: a module with imports,
the class under a name, and a main part that runs it on inputs of the right shapes.
"""

from __future__ import annotations

import re

_CLASS = re.compile(r"^class (?:<\w+>|\w+)\(torch\.nn\.Module\):", re.M)
_FILE = '''"""{title}

{note}
"""

import torch
from math import inf, nan  # noqa: F401
from torch import device  # noqa: F401

from torchglass.inspector.torch_compile.support import example_inputs, graph_module


{text}


if __name__ == "__main__":
    module = graph_module(GraphModule)
    print(module(*example_inputs(module)))
'''


_FLATTEN = re.compile(r"^[ ]+([\w, ]+), = fx_pytree\.tree_flatten_spec\(.*\)\n", re.M)
_HEADER = re.compile(r"def forward\([^)]*\):")
_UNFLATTEN = re.compile(r"return pytree\.tree_unflatten\((.*), self\._out_spec\)", re.S)


def _flat(text: str) -> str:
    """A graph that takes nested arguments by a specification it does not print: here it takes and returns them flat."""
    match = _FLATTEN.search(text) if "tree_flatten_spec" in text else None
    if match is None:
        return text
    parameters = []
    for name in match[1].split(", "):
        annotation = re.search(rf"^[ ]+{name}: (\"[^\"]*\")", text, re.M)
        parameters.append(f"{name}: {annotation[1]}" if annotation else name)
    text = _FLATTEN.sub("", text, count=1)
    text = _HEADER.sub(lambda _: f"def forward(self, {', '.join(parameters)}):", text, count=1)
    return _UNFLATTEN.sub(r"return \1", text)


def graph_file(text: str, title: str, note: str) -> str:
    """The file for a printed graph; if the print is no Python, all of it as comments and a line that says so."""
    body = _CLASS.sub("class GraphModule(torch.nn.Module):", text.strip(), count=1)
    body = _flat(body)
    body = re.sub(r"^\s*# graph id: \d+\s*$", "", body, flags=re.M).rstrip()
    whole = _FILE.format(title=title, note=note, text=body)
    try:
        compile(whole, title, "exec", dont_inherit=True)  # no tree for Python to build: a third less than ast.parse
    except SyntaxError as error:
        commented = "\n".join(f"# {line}".rstrip() for line in body.splitlines())
        return f'"""{title}\n\ntorch.compile\'s print of this graph is no Python ({error.msg}).\n"""\n\n{commented}\n'
    return whole
