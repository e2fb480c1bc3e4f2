"""torch.utils.checkpoint: captured whole, its nodes marked as one region."""

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import torchglass as tg

from .gradients import assert_as_eager, backends, make_input


@pytest.fixture(autouse=True)
def clean(tmp_path):
    tg.reset()
    with tg.prepare_debug(tmp_path):
        yield


def block(module, x):
    return torch.tanh(module(x)) * 2


FUNCTIONS = {
    "plain": lambda m, x: checkpoint(block, m, x, use_reentrant=False) + 1,
    "a module": lambda m, x: checkpoint(m, x, use_reentrant=False).sin(),
    "keywords": lambda m, x: checkpoint(block, m, x=x, use_reentrant=False, preserve_rng_state=False),
    "dropout": lambda m, x: checkpoint(lambda a: F.dropout(m(a), 0.5), x, use_reentrant=False) * 3,
    "reentrant": lambda m, x: checkpoint(block, m, x, use_reentrant=True) + 1,
    "reentrant tuple": lambda m, x: checkpoint(lambda a: (m(a), a * 2), x, use_reentrant=True),
    "reentrant argument returned": lambda m, x: checkpoint(lambda a: a, x * 1, use_reentrant=True),
    "nested": lambda m, x: checkpoint(
        lambda a: checkpoint(block, m, a, use_reentrant=False).cos(), x, use_reentrant=False
    ),
    "partial": lambda m, x: functools.partial(checkpoint, use_reentrant=False)(functools.partial(block, m), x),
    "without gradients": lambda m, x: without(m, x),
    "repeated": lambda m, x: checkpoint(block, m, checkpoint(block, m, x, use_reentrant=False), use_reentrant=False),
}


@torch.no_grad()
def without(module, x):
    return checkpoint(block, module, x, use_reentrant=False)


@backends
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("requires_grad", [True, False])
def test_as_eager(name, backend, requires_grad):
    assert_as_eager(FUNCTIONS[name], backend, nn.Linear(4, 4), requires_grad)


@pytest.mark.parametrize("reentrant", [True, False])
def test_sequential(reentrant):
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Tanh())
    assert_as_eager(lambda m, x: checkpoint_sequential(m, 2, x, use_reentrant=reentrant), "aot_eager", module)


def test_nodes_are_marked_by_region():
    graphs = []

    def keep(graph, inputs):
        graphs.append(graph)
        return graph.forward

    def f(x):
        x = x.exp()
        x = checkpoint(lambda a: a.sin().cos(), x, use_reentrant=False)
        x = x.tanh()
        return checkpoint(lambda a: checkpoint(torch.sigmoid, a, use_reentrant=False), x, use_reentrant=False)

    tg.compile(f, backend=keep, fullgraph=True)(make_input())
    regions = {n.name: n.meta.get("checkpoint_region") for n in graphs[0].graph.nodes if n.op.startswith("call")}
    assert regions == {"exp": None, "sin": 0, "cos": 0, "tanh": None, "sigmoid": 1}


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.linear(x)


@pytest.mark.parametrize("module", [Counting, lambda: nn.BatchNorm1d(4)])
def test_what_eager_does_twice_breaks(module):
    outcomes = []
    for wrap in (lambda f: f, lambda f: tg.compile(f, backend="eager")):
        torch.manual_seed(0)
        made = module()
        wrap(lambda m, x: checkpoint(m, x, use_reentrant=False))(made, make_input()).sum().backward()
        outcomes.append((getattr(made, "calls", None), [b.tolist() for b in made.buffers()]))
    assert outcomes[0] == outcomes[1]
    with pytest.raises(Exception, match="breaks"):
        tg.compile(lambda m, x: checkpoint(m, x, use_reentrant=False), fullgraph=True)(module(), make_input())


def test_gradient_checkpointing_of_transformers():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, vocab_size=30,
        max_position_embeddings=16,
    )  # fmt: skip
    ids = torch.arange(8)[None]
    outcomes = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = transformers.BertModel(config)
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.train()
        call = tg.compile(model, backend="eager", fullgraph=True) if compiled else model
        torch.manual_seed(1)
        result = call(input_ids=ids).last_hidden_state
        result.square().sum().backward()
        outcomes.append((result.detach(), [p.grad for p in model.parameters() if p.grad is not None]))
    for a, b in zip([outcomes[0][0], *outcomes[0][1]], [outcomes[1][0], *outcomes[1][1]]):
        torch.testing.assert_close(a, b)
