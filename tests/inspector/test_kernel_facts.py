"""What a report says of a Triton kernel: the time of its bytes, registers, spills, and what it was not fused with."""

from __future__ import annotations

import json
import types
import weakref

import pytest
import torch
from tests.codegen.test_triton_text import GPU, fused, make

import torchglass as tg
from torchglass import codegen, schedule
from torchglass.inspector.explain import Explanation
from torchglass.inspector.kernel_facts import Resources, not_fused, resources
from torchglass.records.compilation import EntryRecord, FunctionRecord, GraphRecord, SideRecord


def call(args):
    """A wrapper's, whose kernels are among its globals."""


@pytest.fixture(scope="module")
def side() -> SideRecord:
    scheduled = schedule.run(
        fused(lambda x, w: (torch.softmax(x * 2, 0) @ w).relu().sum(1), [make(64, 32), make(32, 16)]), GPU
    )
    sources = codegen.run(scheduled, GPU)
    return SideRecord("forward", fused=scheduled.fused, kernels=sources.kernels)


def loaded(side: SideRecord) -> tuple[SideRecord, types.FunctionType]:
    """The side with code of which kernel_0 has run on a GPU, and that code."""
    launcher = types.SimpleNamespace(registers=40, spilled=1536)
    function = types.FunctionType(call.__code__, {"kernel_0": launcher})
    made = SideRecord("forward", fused=side.fused, kernels=side.kernels, call=weakref.ref(function))
    return made, function


def explained(side: SideRecord) -> Explanation:
    return Explanation(FunctionRecord("f", entries=[EntryRecord(0, graphs=(GraphRecord("graph_0", [side]),))]))


def test_registers_are_asked_of_what_runs(side: SideRecord) -> None:
    assert resources(side, "kernel_0") is None
    made, function = loaded(side)
    assert resources(made, "kernel_0") == Resources(40, 1536)
    assert resources(made, "kernel_1") is None
    del function
    assert resources(made, "kernel_0") is None  # and the record has kept nothing alive


def test_neighbours(side: SideRecord) -> None:
    found = not_fused(side)
    assert found.keys() == {kernel.name for kernel in side.kernels} == {"kernel_0", "kernel_1"}
    for kernel in found:
        assert any("mm" in name and why.startswith("a call of ") for name, why in found[kernel].items()), found


def test_the_texts_show_them(side: SideRecord) -> None:
    made, function = loaded(side)
    report = explained(made)
    text = str(report)
    for part in ("moves", "at least", "registers", "spills", "1.5 KB", "a call of"):
        assert part in text, text
    first, second = report.to_dict()["entries"][0]["graphs"][0]["kernels"]
    assert first["floor"] == pytest.approx(1e6 * first["bytes"] / GPU.cpu.bandwidth)
    assert (first["registers"], first["spilled"], second["registers"]) == (40, 1536, None)
    assert first["not_fused"][0].keys() == {"with", "why"}
    assert json.loads(json.dumps(first)) == first
    assert "40 registers a thread" in report.to_html()
    del function


def test_a_cpu_s_kernels_have_none() -> None:
    report = tg.explain(tg.compile(lambda x: torch.softmax(x, -1).sum(0)))(torch.randn(8, 16))
    text = str(report)
    assert "moves" in text and not any(part in text for part in ("at least ", "registers", "spills"))
    (kernel, *_) = report.to_dict()["entries"][0]["graphs"][0]["kernels"]
    assert "registers" not in kernel and "floor" not in kernel
