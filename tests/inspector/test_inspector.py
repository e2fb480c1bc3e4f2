"""Reports and pictures made from records alone."""

import json
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest
import torch

from torchglass.inspector import draw, show
from torchglass.inspector.explain import Explanation
from torchglass.inspector.readme import readme
from torchglass.records.breaks import GraphBreak
from torchglass.records.compilation import (
    EntryRecord,
    Event,
    Fallback,
    FunctionRecord,
    GraphRecord,
    Recompile,
    SideRecord,
)
from torchglass.records.guards import CHECKS, Guard, TensorMeta
from torchglass.records.kernels import FusedGraph, FusionDecision, Kernel
from torchglass.records.loops import LoopGraph
from torchglass.records.origin import Origin
from torchglass.records.partition import SavedTensor, TensorRef
from torchglass.records.sources import Attr, Local

LINE = Origin("/app/model.py", 12, "toy")
META = TensorMeta(torch.Tensor, torch.float32, torch.device("cpu"), (10,), (1,), True)


@pytest.fixture
def record() -> FunctionRecord:
    kernel = Kernel("kernel_0", "c", "void kernel_0() {}", ("x", "out"), ("mul",), ("mul", "add"), (LINE,), calls=2)
    decisions = (
        FusionDecision("mul", "add", True, "pointwise", "same ranges", 40),
        FusionDecision("norm", "matmul", False, "producer", "a kernel calls no ATen"),
    )
    fused = FusedGraph(LoopGraph("forward", ("x",), {}, (), ()), (), decisions)
    graph = GraphRecord(
        "graph_0",
        [SideRecord("captured", "def forward(x): ..."), SideRecord("forward", fused=fused, kernels=(kernel,))],
        saved=(SavedTensor("x", (10,), torch.float32, 40, "an input", TensorRef("input", 0), LINE),),
        node_count=3,
        events=[Event("codegen", 2.0, 0.25)],
    )
    guards = (
        Guard(Local("x"), "tensor", META, "an input of the graph", LINE),
        Guard(Attr(Local("mod"), "training"), "constant", False, "read in forward", LINE),
    )
    entry = EntryRecord(
        0, guards, "def check(x, mod): ...", "def transformed(x, mod):\n    return graph_0(x)\n", (graph,),
        (GraphBreak("a branch on a tensor", LINE, "use torch.where"),),
        [Event("capture", 0.0, 0.5), Event("autodiff", 0.5, 1.5)],
    )  # fmt: skip
    resume = FunctionRecord("resume_at_8", LINE, Path("/glass/toy/entry_0/resume_at_8"), [EntryRecord(0)])
    return FunctionRecord(
        "toy", LINE, Path("/glass/toy"), [entry], [Recompile(guards[1], False, True, 0)],
        [Fallback("past the cache limit", LINE)], [resume],
    )  # fmt: skip


def test_the_report_shows_guards_code_graphs_breaks_recompiles(record):
    text = str(Explanation(record))
    for words in (
        "toy (model.py:12): 1 entry, 1 graph, 1 graph break",
        "mod.training == False",
        "read in forward (model.py:12)",
        "return graph_0(x)",
        "graph_0: 3 operations, 1 kernel, 1 tensor (40 bytes) saved for backward",
        "a branch on a tensor at model.py:12; use torch.where",
        "resume_at_8",
        "runs eagerly: past the cache limit",
        "compiling took 2.2 s: capture 500 ms, autodiff 1.5 s, codegen 250 ms",
        "/glass/toy",
        "kernel_0 (called 2 times)",
        "norm + matmul",
        "a kernel calls no ATen",
        "an input",
    ):
        assert words in text


def test_the_report_as_data_is_json(record):
    data = json.loads(json.dumps(Explanation(record).to_dict()))
    entry = data["entries"][0]
    assert entry["guards"][1]["check"] == "mod.training == False"
    assert entry["graphs"][0]["kernels"][0]["calls"] == 2
    assert data["resumes"][0]["name"] == "resume_at_8"
    assert data["recompiles"] == [
        {"guard": entry["guards"][1]["check"], "old": "False", "new": "True", "entry": 0, "advice": "", "others": []}
    ]
    assert data["seconds_by_stage"] == {"capture": 0.5, "autodiff": 1.5, "codegen": 0.25}


def test_the_report_calls_the_function_when_called(record):
    explanation = Explanation(record, lambda x, y=1: x + y)
    assert explanation(2, y=3) is explanation
    assert explanation.result == 5
    with pytest.raises(TypeError, match="no function"):
        Explanation(record)()


def test_readme(record):
    text = readme(record)
    assert text.startswith("# toy\n")
    for words in (
        "1 entry, 1 graph, 1 graph break, 1 recompile.",
        "## entry 0",
        "[guards.py](entry_0/guards.py): 2 guards. [transformed.py](entry_0/transformed.py): what a call executes.",
        "- [graph_0](entry_0/graph_0/): 3 operations, 1 kernel, 1 tensor (40 bytes) kept for backward",
        "  - forward `kernel_0`: mul, add (called 2 times)",
        "- **Graph break** at `model.py:12`: a branch on a tensor; use torch.where",
        "capture 500 ms",
        "| `mod.training == False` | `False` | `True` |",
        "**Runs eagerly** at `model.py:12`: past the cache limit",
        "## Continues as entry_0/resume_at_8",
        "](entry_0/resume_at_8/entry_0/guards.py)",
    ):
        assert words in text
    assert "\n\n\n" not in text


def test_an_empty_record_is_no_error():
    record = FunctionRecord("f")
    assert "0 entries" in str(Explanation(record))
    assert readme(record).startswith("# f\n")


class Loud:
    def __repr__(self):
        raise RuntimeError("a user's repr was run")


@pytest.mark.parametrize("check", CHECKS)
def test_every_check_prints_and_runs_no_users_code(check):
    for expected in (Loud(), Loud, 3, META, (Local("a"), Local("b")), Local("y"), [1, "a"], {"k": Loud()}):
        line = show.guard_line(Guard(Local("x"), check, expected))
        assert line
        assert "{" not in line or "{o" in line or "'k'" in line or "id(" in line


def test_long_values_are_cut():
    assert len(show.value("a" * 1000)) == 80


def test_no_more_of_a_value_is_read_than_is_shown():
    itself: dict = {}
    itself["me"] = itself
    nested: list = []
    for _ in range(5000):
        nested = [nested]
    assert show.value(itself) == "{'me': {...}}"
    assert show.value(nested) == "[" * 77 + "..."
    assert len(show.value(dict.fromkeys(range(10**6)))) == 80
    assert show.value(-(10**5000)).startswith("-0x")
    assert show.value(torch.ones(3)) == "<torch.Tensor object>"
    assert show.value(slice(0, (1,))) == "slice(0, (1,), None)"
    assert show.value((object.__getattribute__, property.fget)) == "(object.__getattribute__, property.fget)"


def test_tensors():
    assert show.tensor(META) == "float32[10] requires_grad"
    turned = TensorMeta(torch.nn.Parameter, torch.int64, torch.device("cuda:0"), (2, 3), (1, 2), False)
    assert show.tensor(turned) == "int64[2, 3] strides (1, 2) cuda:0 Parameter"


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 bytes"), (1536, "1.5 KB"), (5 << 30, "5.0 GB"), (1 << 45, "32768.0 GB")]
)
def test_sizes(number, text):
    assert show.size(number) == text


def test_a_drawing_is_xml_with_a_box_for_each_node():
    gm = torch.fx.symbolic_trace(lambda x, y: torch.where(x < y, x & 1, y).sin() + x)
    for node in gm.graph.nodes:
        node.meta["origin"] = LINE
    root = xml.fromstring(draw.svg(gm, "a < b & c"))
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{space}g")) == len(gm.graph.nodes)
    assert root.find(f"{space}title").text == "a < b & c"
    assert len(root.findall(f"{space}path")) == sum(len(n.all_input_nodes) for n in gm.graph.nodes)


def test_boxes_of_a_layer_do_not_overlap():
    def wide(x):
        return sum(torch.sin(x) * n for n in range(9))

    boxes, width, height = draw.place(draw.rows_of(torch.fx.symbolic_trace(wide)))
    for a in boxes.values():
        assert a[0] + a[2] <= width
        assert a[1] < height
        for b in boxes.values():
            assert a is b or a[1] != b[1] or a[0] + a[2] < b[0] or b[0] + b[2] < a[0]
