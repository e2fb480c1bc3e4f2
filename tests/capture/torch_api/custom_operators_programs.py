"""Operators of ``torch.library`` and ``torch.ops``."""

from __future__ import annotations

import numpy as np
import torch

from ..tables import tables

WHOLE, BREAKING, whole, breaking = tables()
ONLY_TENSORS = True  # what they do with numbers says nothing


@torch.library.custom_op("glasstest::mysin", mutates_args=())
def mysin(x: torch.Tensor, k: float = 1.0) -> torch.Tensor:
    return torch.from_numpy(np.sin(x.detach().numpy() * k))


@mysin.register_fake
def _(x, k=1.0):
    return torch.empty_like(x)


mysin.register_autograd(
    lambda ctx, g: (g * ctx.s.cos(), None), setup_context=lambda ctx, inputs, output: setattr(ctx, "s", inputs[0])
)


@whole
def custom_op(x):
    return mysin(x) + mysin(x, 2.0)


@whole
def custom_op_ops(x):
    return torch.ops.glasstest.mysin(x)


@torch.library.custom_op("glasstest::inc_", mutates_args={"x"})
def inc_(x: torch.Tensor) -> None:
    x += 1


@whole
def custom_op_mut(x):
    y = x.clone()
    inc_(y)
    return y


L = torch.library.Library("glasstest2", "DEF")
L.define("twice(Tensor x) -> Tensor")
L.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
L.impl("twice", lambda x: torch.empty_like(x), "Meta")


@whole
def custom_lib(x):
    return torch.ops.glasstest2.twice(x), torch.ops.glasstest2.twice.default(x)


for name in ("load", "save", "seed", "compile"):  # PyTorch's own functions of these names break the graph
    L.define(f"{name}(Tensor x) -> Tensor")
    L.impl(name, lambda x: x * 2, "CompositeExplicitAutograd")
    L.impl(name, lambda x: torch.empty_like(x), "Meta")
for name in ("get_table", "set_up", "is_new"):  # nor is this a question about its state, or a change of it
    L.define(f"{name}(int n) -> Tensor")
    L.impl(name, lambda n: torch.ones(n), "CompositeExplicitAutograd")
    torch.library.register_fake(f"glasstest2::{name}", lambda n: torch.empty(n), lib=L)
L.define("without_fake(int n) -> Tensor")
L.impl("without_fake", lambda n: torch.ones(n), "CompositeExplicitAutograd")


@whole
def operators_with_any_name(x):
    own = torch.ops.glasstest2
    made = own.load(own.save(x)) + own.seed.default(own.compile(x))
    return made, own.get_table(3) + 1, own.set_up(4) * 2, own.is_new(2) - x.sum()


@whole
def op_calls(x):
    return torch.ops.aten.add.Tensor(x, x), torch.ops.aten.mul(x, 2)


@breaking
def operator_without_fake(x):
    return torch.ops.glasstest2.without_fake(4) + x * 2
