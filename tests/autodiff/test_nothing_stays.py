"""After a call nothing of it is alive that is not alive in eager; after a model is dropped, nothing of the model."""

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import torchglass as tg


@pytest.fixture(autouse=True, scope="module")
def a_first_break():
    """The first graph break of a process leaves its arguments to the collector, others do not."""
    tg.compile(Broken(), backend="eager")(torch.randn(4, 16))
    gc.collect()


def as_captured(gm, example_inputs):
    return gm.forward


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class Model(nn.Module):
    def __init__(self, size=16):
        super().__init__()
        self.inner = nn.Linear(size, size)


class Plain(Model):
    def forward(self, x):
        return self.inner(x).relu()


class Broken(Model):
    def forward(self, x):
        y = self.inner(x)
        tg.graph_break()
        return y.relu() * 2


class Checkpointed(Model):
    def forward(self, x):
        return checkpoint(lambda t: self.inner(t).sin(), x, use_reentrant=False)


class Custom(Model):
    def forward(self, x):
        return Doubled.apply(self.inner(x))


class Written(Model):
    def forward(self, x):
        y = self.inner(x)
        y[0] = 0
        return y, y.t()


MODELS = [Plain, Broken, Checkpointed, Custom, Written]
OPTIONS = [
    {"backend": "eager"},
    {"backend": "aot_eager"},
    {"backend": "glass"},
    {"backend": as_captured},
    {"mode": "reduce-overhead"},
    {"mode": "max-autotune"},
]


WAYS = {"module": lambda m: m, "method": lambda m: m.forward, "closure": lambda m: lambda x: m(x)}


def train(model, call, refs):
    x = torch.randn(4, 16)
    found = call(x)
    found = found if isinstance(found, tuple) else (found,)
    refs["batch"] = weakref.ref(x)
    refs |= {f"result {i}": weakref.ref(y) for i, y in enumerate(found)}
    sum(y.sum() for y in found).backward()
    refs["weight"] = weakref.ref(model.inner.weight)
    refs["gradient"] = weakref.ref(model.inner.weight.grad)
    refs["model"] = weakref.ref(model)


def alive(refs):
    return [name for name, ref in refs.items() if ref() is not None]


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: str(next(iter(o.values()))).split()[0])
@pytest.mark.parametrize("how", ["module", "closure", pytest.param("method", marks=pytest.mark.slow)])
def test_a_model_that_is_dropped(kind, options, how):
    if how != "module" and options.get("backend") != "glass":
        pytest.skip("seen with one backend")
    tg.reset()
    model = kind()
    call = tg.compile(WAYS[how](model), **options)
    refs = {}
    gc.collect()
    gc.disable()
    try:
        train(model, call, refs)
        kept = [name for name in alive(refs) if name not in ("weight", "gradient", "model")]
    finally:
        gc.enable()
    assert kept == []
    del model, call
    gc.collect()
    assert alive(refs) == []


def megabytes_of_models(count, size=256):
    """What the tensors that are alive take after so many models were compiled for training and dropped."""
    for _ in range(count):
        model = Plain(size)
        tg.compile(model, backend="aot_eager")(torch.randn(2, size)).sum().backward()
        del model
    gc.collect()
    tensors = [o for o in gc.get_objects() if type(o) in (torch.Tensor, nn.Parameter)]
    return sum({t.data_ptr(): t.untyped_storage().nbytes() for t in tensors if has_memory(t)}.values()) / 2**20


def has_memory(tensor):
    """Not those of traces: other tests may have left some."""
    try:
        return tensor.device.type == "cpu" and tensor.data_ptr() != 0
    except RuntimeError:
        return False


@pytest.mark.parametrize("count", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_many_models(count):
    before = megabytes_of_models(2)
    assert megabytes_of_models(count) < before + 1
