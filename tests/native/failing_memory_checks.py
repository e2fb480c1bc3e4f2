"""Every allocation of the native core fails once: ``LD_PRELOAD=failing_memory.so python failing_memory_checks.py``.

A call in which memory ran out raises MemoryError, or does without; the process lives, and the next call is right.
"""

from __future__ import annotations

import ctypes
import gc
import operator
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from torchglass import _native
from torchglass.records.guards import Guard, TensorMeta
from torchglass.records.sources import Attr, InstanceDict, Item, Local
from torchglass.runtime.guards import build_table

memory = ctypes.CDLL(None)
memory.fail_allocation.argtypes = [ctypes.c_long]
Scenario = Callable[[], Any]


class Holder:
    def __init__(self) -> None:
        self.value = 1


module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
holder = Holder()
x = torch.ones(2, 3)


def function(module: nn.Module, holder: Holder, x: torch.Tensor, *rest: Any, **more: Any) -> Any:
    return x


def guards() -> tuple[list[Guard], list[Any]]:
    found, fetch = [Guard(Local("x"), "tensor", TensorMeta.of(x))], []
    for i in range(2):
        child = Item(Item(InstanceDict(Local("module")), "_modules"), str(i))
        for name, parameter in module[i]._parameters.items():
            where = Item(Item(InstanceDict(child), "_parameters"), name)
            found.append(Guard(where, "tensor", TensorMeta.of(parameter)))
            fetch.append(where)
    found.append(Guard(Item(InstanceDict(Local("holder")), "value"), "constant", 1))
    found.append(Guard(Attr(Local("holder"), "__doc__"), "constant", None))  # runs on every call
    return found, fetch


def table_of() -> Any:
    return build_table(*guards(), function)


def remembering() -> Any:
    """Built, evaluated, remembered, then asked again and after a change."""
    table = table_of()
    answers = [table.check((module, holder, x, (), {})) is not None for _ in range(4)]
    holder.value = 2
    answers.append(table.check((module, holder, x, (), {})) is not None)
    holder.value = 1
    return [*answers, table.check((module, holder, x, (), {})) is not None]


kept = table_of()


def keeping() -> Any:
    """A table that lives on after memory ran out."""
    holder.value = 2
    changed = kept.check((module, holder, x, (), {}))
    holder.value = 1
    return changed, [kept.check((module, holder, x, (), {})) is not None for _ in range(3)]


compiled = _native.CompiledFunction(function, lambda parameters: "missed")
compiled.add_entry(kept, lambda *parameters: len(parameters))


def calling() -> Any:
    many = {f"k{i}": i for i in range(5)}
    return compiled(module, holder, x), compiled(module, holder, x, 1, 2, k=3), compiled(holder, module, x), many


def wide(a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20, a21): ...


many_parameters = _native.CompiledFunction(wide, len)


def graphs() -> Any:
    weight = torch.ones(3, requires_grad=True)
    graph = _native.GraphFunction(
        lambda inputs: (inputs[0] * inputs[1], inputs[0] + 1),
        lambda saved, tangents: [tangents[0] * saved[1], tangents[0] * saved[0]],
        2, (0, 1), 2, (0, 1), (0,), 1, None, ((0,),), ((0,), (0,)),
    )  # fmt: skip
    (result,) = graph(weight, weight)
    result.sum().backward()
    return result.tolist(), weight.grad.tolist(), _native.below_autograd(tuple, [1])


def regions() -> Any:
    def inner(a: int) -> int:
        return a + 1

    def compile_inner(called: Any, parameters: tuple[Any, ...], known: Any) -> Any:
        return (lambda a, fetched: a + 10), ()

    region = _native.Region(compile_inner)
    with region, region:
        found = inner(1)
    region.add(inner, compiled)
    region.skip(inner.__code__)
    return found


def tensors() -> Any:
    made = _native.empty_strided((300, 300), (300, 1), torch.float32)
    view = _native.reinterpret(made, (2,), (1,), 3)
    number = _native.number_tensor(2, torch.int64)
    target, source = torch.zeros(3), torch.ones(3)
    _native.write_back((target,), (source,), ((0, 0, 0),))
    shared = [made[i] for i in range(4)]
    state = _native.ThreadState()
    state.restore()
    return (
        view.shape, number.item(), target.tolist(), _native.overlap((made, view, target), (0, 2)),
        _native.overlap(tuple(shared), (1,)), _native.tensor_flags(made), len(_native.global_state()),
        _native.same_constant(frozenset({1, 2}), frozenset({2, 1})),
        _native.has_layout(made, (300, 300), (300, 1), torch.float32),
    )  # fmt: skip


def fallible_computations() -> Any:
    nodes = (("local", -1, 0), ("local", -1, 1))
    operations = ((0,), (1,), (operator.add, 2))
    relations = (
        ("computed", operations, 5), ("distinct", (0, 1)), ("class", Holder, (("class_lacks", "absent"),)),
        ("names", vars(operator), (("add", operator.add),)),
    )  # fmt: skip
    table = _native.GuardTable(nodes, ((0, "type", int),), relations, _native.global_state(), (0, 1))
    return table.check((2, 3)), table.check((2, 3)), table.check((2, 4)), OrderedDict


SCENARIOS: list[Scenario] = [
    remembering, keeping, calling, graphs, regions, tensors, fallible_computations,
    lambda: many_parameters(*range(21)),
]  # fmt: skip


def check(scenario: Scenario) -> int:
    """How many allocations the scenario makes, each of which has failed once."""
    wanted = scenario()
    for number in range(1, 10_000):
        memory.fail_allocation(number)
        try:
            found = scenario()
        except MemoryError:
            found = wanted
        except RuntimeError as error:  # what a backward throws, PyTorch's engine raises in its own way
            assert "bad_alloc" in str(error), error
            found = wanted
        finally:
            failed = memory.has_failed()
        holder.value = 1
        assert found == wanted, (scenario, number, found)
        assert scenario() == wanted, (scenario, number)
        if not failed:
            return number - 1
    raise AssertionError(f"{scenario} never comes to an end")


if __name__ == "__main__":
    counts = [check(scenario) for scenario in SCENARIOS]
    gc.collect()
    assert min(counts) > 0 or not any(counts), counts
    print("all hold" if any(counts) else "no allocation fails", counts)
