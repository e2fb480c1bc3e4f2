"""Random programs of views, writes, detachments and no_grad regions: all that a user can see equals eager."""

from __future__ import annotations

import operator
import os
import random
from typing import Any

import pytest
import torch
import torch.fx
from autodiff_helpers import compare, tensor
from tests.autodiff import training_programs

from torchglass import autodiff

UNARY = ("sin", "exp", "relu", "neg", "clone", "tanh", "log", "sqrt", "reciprocal")
BINARY = (torch.add, torch.mul, torch.sub)
VIEWS = (("t", ()), ("detach", ()), ("view", (2, 8)), ("view", (4, 4)), ("narrow", (0, 1, 2)), ("unsqueeze", (0,)))
WRITES = ("add_", "mul_", "relu_", "zero_", "copy_")


class Program:
    """A random graph module, built while it is executed on real tensors, so that only valid steps are taken."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.graph = torch.fx.Graph()
        self.inputs = [tensor(4, 4, grad=self.random.random() < 0.6, seed=i) for i in range(3)]
        self.values: list[tuple[torch.fx.Node, torch.Tensor]] = []
        for index, value in enumerate(self.inputs):
            value = value * 1.0 if value.requires_grad else value.clone()
            self.values.append((self.graph.placeholder(f"x{index}"), value))

    def build(self, steps: int) -> torch.fx.GraphModule:
        for _ in range(steps):
            step = self.random.choice([self.unary, self.binary, self.view, self.write, self.write_untracked, self.item])
            try:
                step()
            except (RuntimeError, IndexError):  # eager refuses it: shapes, writes to views made under no_grad, ...
                self.drop_last()
        chosen = self.random.sample(self.values, min(len(self.values), self.random.randint(1, 5)))
        self.graph.output(tuple(node for node, _ in chosen))
        return torch.fx.GraphModule({}, self.graph)

    def use(self, outputs: list[Any]) -> list[Any]:
        """What the loss is made of: some of the outputs, read so that their gradients arrive in various layouts. The
        same for every run.
        """
        choice = random.Random(len(self.values))
        reads = (torch.sum, torch.t_copy, torch.exp, lambda out: out[..., :1], lambda out: out.flip(0), torch.mean)
        tensors = [out for out in outputs if isinstance(out, torch.Tensor) and out.dim() == 2]
        used = choice.sample(tensors, choice.randint(min(1, len(tensors)), len(tensors)))
        return [choice.choice(reads)(out) for out in used]

    def drop_last(self) -> None:
        """Take out calls whose execution failed; they stand at the end and nothing reads them."""
        known = {node for node, _ in self.values}
        for node in reversed(list(self.graph.nodes)):
            if node in known or node.users or node.meta.get("done"):
                break
            self.graph.erase_node(node)

    def pick(self) -> tuple[torch.fx.Node, torch.Tensor]:
        return self.random.choice(self.values)

    def method(self, name: str, *args: Any) -> None:
        nodes = tuple(arg[0] if isinstance(arg, tuple) else arg for arg in args)
        reals = [arg[1] if isinstance(arg, tuple) else arg for arg in args]
        node = self.graph.call_method(name, nodes)
        value = getattr(reals[0], name)(*reals[1:])
        node.meta["done"] = True
        if name not in WRITES:
            self.values.append((node, value))

    def unary(self) -> None:
        self.method(self.random.choice(UNARY), self.pick())

    def binary(self) -> None:
        (a, x), (b, y) = self.pick(), self.pick()
        function = self.random.choice(BINARY)
        value = function(x, y)
        self.values.append((self.graph.call_function(function, (a, b)), value))

    def view(self) -> None:
        name, args = self.random.choice(VIEWS)
        self.method(name, self.pick(), *args)

    def write(self) -> None:
        name = self.random.choice(WRITES)
        target, source = self.pick(), self.pick()
        if source[1].untyped_storage().data_ptr() == target[1].untyped_storage().data_ptr():
            return  # eager leaves undefined what happens when a write reads the memory it writes
        operands = {"add_": (0.5,), "mul_": (source,), "copy_": (source,)}.get(name, ())
        self.method(name, target, *operands)

    def write_untracked(self) -> None:
        off = self.graph.call_function(torch._C._set_grad_enabled, (False,))
        with torch.no_grad():
            try:
                self.write()
            except (RuntimeError, IndexError):
                self.drop_last()
        on = self.graph.call_function(torch._C._set_grad_enabled, (True,))
        off.meta["done"] = on.meta["done"] = True

    def item(self) -> None:
        node, value = self.pick()
        index = self.random.choice([0, (slice(None), 1), slice(1, 3)])
        if self.random.random() < 0.5:
            value[index] = 2.0
            self.graph.call_function(operator.setitem, (node, index, 2.0)).meta["done"] = True
        else:
            self.values.append((self.graph.call_function(operator.getitem, (node, index)), value[index]))


@pytest.mark.parametrize("block", range(int(os.environ.get("TORCHGLASS_FUZZ", "6"))))
def test_random_programs(block: int):
    refused = 0
    for seed in range(block * 50, block * 50 + 50):
        program = Program(seed)
        gm = program.build(12)
        try:
            compare(gm, *program.inputs, use=program.use, gm=gm, exact=False)
        except autodiff.AutodiffError:
            refused += 1
        except RuntimeError as error:
            if "modified by an inplace operation" not in str(error):
                raise AssertionError(f"seed {seed}: {gm.code}") from error
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {gm.code}\n{error}") from error
    assert refused <= 5


def differing(seeds: range) -> list[str]:
    found = []
    for seed in seeds:
        program = training_programs.Program(seed)
        for backend in ("aot_eager", "glass"):
            text = training_programs.difference(program, backend)
            found += [f"seed {seed} {backend}: {text}\n{program.text}"] if text else []
    return found


@pytest.mark.complains(*training_programs.REFUSED)
def test_random_training_programs():
    assert not differing(range(12))


@pytest.mark.slow
@pytest.mark.complains(*training_programs.REFUSED)
@pytest.mark.parametrize("block", range(10))
def test_many_random_training_programs(block):
    assert not differing(range(100 + 30 * block, 130 + 30 * block))
