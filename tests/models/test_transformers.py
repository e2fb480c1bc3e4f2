"""The models that are measured: whole graphs, outputs and gradients against float64, the module's face unchanged."""

import pytest
import torch

pytest.importorskip("transformers")

from benchmarks import common

import torchglass as tg

LAYERS = 2
CASES = [
    (name, attention)
    for name, workload in common.WORKLOADS.items()
    for attention in (common.ATTENTIONS if workload.attends else common.ATTENTIONS[:1])
]


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with tg.prepare_debug(tmp_path / "glass"):
        yield


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind == "training" else pytest.mark.slow) for kind in common.KINDS]
)
@pytest.mark.parametrize(("name", "attention"), CASES)
def test_within_twice_eagers_own_error(name, attention, kind):
    rows = common.accuracy(common.WORKLOADS[name], attention, kind, tg.compile, layers=LAYERS)
    assert len(rows) > 1 or kind == "inference"
    assert not [r for r in rows if not r.fine]


@pytest.mark.parametrize(("name", "attention"), CASES)
def test_one_graph_and_one_entry(name, attention):
    model, inputs = common.WORKLOADS[name].build(attention, layers=LAYERS)
    compiled = tg.compile(model.eval(), fullgraph=True)
    for seed in range(2):
        torch.manual_seed(seed)
        other = {k: v[torch.randperm(len(v))] for k, v in inputs.items()}
        with torch.no_grad():
            ours, eager = compiled(**other), model(**other)
        torch.testing.assert_close(common.output_of(ours), common.output_of(eager), atol=1e-4, rtol=1e-4)
    explanation = tg.explain(compiled)
    assert len(explanation.entries) == 1
    assert len(explanation.graphs()) == 1
    assert not explanation.breaks()


@pytest.mark.parametrize("name", common.WORKLOADS)
def test_a_compiled_model_is_the_model(name):
    model, _ = common.WORKLOADS[name].build(layers=LAYERS)
    compiled = tg.compile(model)
    assert isinstance(compiled, type(model))
    assert list(compiled.state_dict()) == list(model.state_dict())
    assert getattr(compiled, "config", None) is getattr(model, "config", None)
    assert [n for n, _ in compiled.named_modules()] == [n for n, _ in model.named_modules()]
    compiled.eval()
    assert not model.training
