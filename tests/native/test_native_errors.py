"""What goes wrong in native code is a Python exception: its type, its text, and nothing is left half done."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from torchglass import _native

HERE = Path(__file__).parent
CORE = HERE.parents[1] / "csrc"

SLOT = re.compile(r"\btp_(?:new|dealloc|traverse|clear|call|repr|descr_get|getattro|setattro) = ([\w<>]+);")
ROW = re.compile(r'\{"?\w+"?,\s*([^,]+?),\s*METH_')
PROPERTY = re.compile(r'\{(?:"\w+"|const_cast<char\*>\("\w+"\)), ([\w<>]+), ([\w<>]+), (?:"|nullptr)')
CALL = re.compile(r"self->vectorcall = ([\w<>]+);")
GUARDED = re.compile(r"(?:entry|quiet_entry|method)<\w+>(?:\(\))?$|Py\w+$|nullptr$")


def test_no_exception_of_cpp_crosses_frames_of_python() -> None:
    """Every function that Python is given is given as ``entry<function>``."""
    seen, bare = 0, []
    for source in CORE.glob("*.cpp"):
        for pattern in (SLOT, ROW, PROPERTY, CALL):
            for found in pattern.findall(source.read_text()):
                functions = (found,) if isinstance(found, str) else found
                seen += len(functions)
                bare += [f"{source.name}: {function}" for function in functions if not GUARDED.match(function)]
    assert not bare
    assert seen > 80


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("g++") is None, reason="preloads what g++ makes")
def test_memory_may_run_out_at_every_allocation(tmp_path: Path) -> None:
    library = tmp_path / "failing_memory.so"
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC", "-Wall", "-Werror"]
    subprocess.run(["g++", *flags, "-o", library, HERE / "failing_memory.cpp"], check=True)
    run = subprocess.run(
        [sys.executable, "-X", "faulthandler", HERE / "failing_memory_checks.py"],
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
    )
    if "no allocation fails" in run.stdout:
        pytest.skip("C++'s library is linked into the module, where no preloaded operator new is found")
    assert run.returncode == 0 and "all hold" in run.stdout, run.stdout + run.stderr


def test_threads_that_outlive_python_end_quietly() -> None:
    """Where they ask for the GIL Python unwinds their stacks, through our frames."""
    program = """
import threading, time, torch
from torchglass import _native
kept = torch.ones(4)
def forward(inputs):
    time.sleep(0.0001)
    return (kept,)
graph = _native.GraphFunction(forward, None, 1, (), 0, (), (), 1)
def function(x):
    return graph(x)
compiled = _native.CompiledFunction(function, lambda parameters: function(*parameters))
def work():
    while True:
        compiled(kept)
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.05)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_errors_of_pytorch_keep_their_types() -> None:
    graph = _native.GraphFunction(lambda inputs: (), None, 1, (3,), 0, (0,), (0,), 1)
    with pytest.raises(IndexError, match="too few results"):
        graph(torch.ones(2, requires_grad=True))
    with pytest.raises(RuntimeError, match=r"no memory for \d+ bytes$"):
        _native.empty_strided((1 << 56,), (1,), torch.float32)
    with pytest.raises(RuntimeError, match="in-place operation"):
        _native.write_back((torch.ones(2, requires_grad=True),), (torch.ones(2),), ((0, 0, 0),))


def test_arguments_that_do_not_fit_are_named() -> None:
    with pytest.raises(TypeError, match="kernel add: argument 0 is a tensor without data"):
        _native.Kernel(1, "add")(torch.ones(2, device="meta"))
    with pytest.raises(OverflowError, match="kernel add: argument 0 does not fit 64 bits"):
        _native.Kernel(1, "add")(1 << 70)
    with pytest.raises(TypeError, match="this graph takes 1 inputs, not 2"):
        _native.GraphFunction(tuple, None, 1, (), 0, (), (), 1)(1, 2)
    with pytest.raises(ValueError, match="leave the storage"):
        _native.reinterpret(torch.ones(2), (3,), (1,), 0)
    with pytest.raises(TypeError, match="number_tensor makes"):
        _native.number_tensor(1, torch.int8)


NODES = (("local", -1, 0),)


@pytest.mark.parametrize(
    ("nodes", "conditions", "relations", "state", "message"),
    [
        ((1,), (), (), None, "nodes must hold tuples, not int"),
        ((("local", -1, sys.maxsize),), (), (), None, "must not be negative, nor past"),
        ((("dict_key", 0, -1),), (), (), None, "must not be negative, nor past"),
        (NODES, (5,), (), None, "conditions must hold tuples, not int"),
        (NODES, ((0, "tensor", 5),), (), None, "what a tensor guard expects must be a tuple, not int"),
        (NODES, (), (5,), None, "relations must hold tuples, not int"),
        (NODES, (), (("same", 5),), None, "node indices must be a tuple, not int"),
        (NODES, (), (("computed", 5, 1),), None, "operations must be a tuple, not int"),
        (NODES, (), (("computed", (5,), 1),), None, "operations must hold tuples, not int"),
        (NODES, (), (("computed", ((int, 1 << 32),), 1),), None, "values that are there"),
        (NODES, (), (("class", 5, ()),), None, "a class is a type, not int"),
        (NODES, (), (("class", int, 5),), None, "conditions on a class must be a tuple, not int"),
        (NODES, (), (("names", 5, ()),), None, "names are those of a dict, not int"),
        (NODES, (), (("names", {}, 5),), None, "names must be a tuple, not int"),
        (NODES, (), (), 5, "state must be a tuple, not int"),
    ],
)  # fmt: skip
def test_guard_tables_of_something_else_are_refused(
    nodes: Any, conditions: Any, relations: Any, state: Any, message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        _native.GuardTable(nodes, conditions, relations, state, ())


def test_a_region_says_what_its_compile_must_return() -> None:
    def called() -> int:
        return 2

    with pytest.raises(TypeError, match="compile must be callable"):
        _native.Region(5)  # type: ignore[arg-type]
    seen: list[Any] = []
    hook, sys.unraisablehook = sys.unraisablehook, lambda error: seen.append(str(error.exc_value))
    try:
        with _native.Region(lambda *arguments: 5):  # type: ignore[arg-type,return-value]
            assert called() == 2
    finally:
        sys.unraisablehook = hook
    assert seen == ["Region: what compile returns, if it is not None, must be a tuple, not int"]


def test_what_a_python_callback_raises_is_raised() -> None:
    class Own(Exception): ...

    def fail(*arguments: object) -> None:
        raise Own("of the program")

    with pytest.raises(Own, match="of the program"):
        _native.GraphFunction(fail, None, 1, (), 0, (), (), 1)(1)
    with pytest.raises(Own, match="of the program"):
        _native.below_autograd(fail, [])
    graph = _native.GraphFunction(lambda inputs: (inputs[0] * 2,), fail, 1, (), 0, (0,), (0,), 1)
    with pytest.raises(Own, match="of the program"):
        graph(torch.ones(2, requires_grad=True))[0].sum().backward()
