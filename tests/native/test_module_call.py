"""A compiled module is called as ``nn.Module.__call__`` does: straight to forward, but not past what is around it."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import pytest
import torch
from torch import nn

import torchglass as tg
from torchglass import _native, torch_compat


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(3.0))

    def forward(self, x: torch.Tensor, *, plus: float = 0.0) -> torch.Tensor:
        return x * self.factor + plus


@pytest.fixture
def module() -> Scale:
    return Scale()


@pytest.fixture
def compiled(module: Scale) -> Any:
    return tg.compile(module, backend="eager")


X = torch.tensor([1.0, 2.0])


def test_calls_forward_with_all_arguments(compiled: Any) -> None:
    assert isinstance(type(compiled).__dict__["__call__"], _native.ModuleCall)
    assert compiled(X).tolist() == [3.0, 6.0]
    assert compiled(x=X, plus=1.0).tolist() == [4.0, 7.0]
    assert compiled.__call__(X, plus=2.0).tolist() == [5.0, 8.0]
    with pytest.raises(TypeError, match="missing"):
        compiled()


def test_hooks_run_from_when_they_are_added_until_they_are_removed(module: Scale, compiled: Any) -> None:
    compiled(X)
    for owner in (module, compiled):
        handle = owner.register_forward_hook(lambda module, args, result: result + 100)
        assert compiled(X).tolist() == [103.0, 106.0]
        handle.remove()
        assert compiled(X).tolist() == [3.0, 6.0]
    handle = module.register_forward_pre_hook(lambda module, args: (args[0] * 10,))
    assert compiled(X).tolist() == [30.0, 60.0]
    handle.remove()


def test_backward_hooks_run(module: Scale, compiled: Any) -> None:
    compiled(X)
    seen = []
    handle = module.register_full_backward_hook(lambda module, inputs, outputs: seen.append(outputs[0].tolist()))
    compiled(X).sum().backward()
    handle.remove()
    assert seen == [[1.0, 1.0]]


def test_hooks_for_all_modules_run(compiled: Any) -> None:
    compiled(X)
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, result: result - 1)
    try:
        assert compiled(X).tolist() == [2.0, 5.0]
    finally:
        handle.remove()
    assert compiled(X).tolist() == [3.0, 6.0]


def test_calls_what_replaced_a_method_of_modules(compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(X)
    for owner, name in ((nn.Module, "__call__"), (nn.Module, "_call_impl"), (Scale, "__call__")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, lambda self, *args, **kwargs: "replaced", raising=False)
            assert compiled(X) == "replaced"
        assert compiled(X).tolist() == [3.0, 6.0]


def test_calls_what_module_compile_left(module: Scale, compiled: Any) -> None:
    compiled(X)
    module._compiled_call_impl = lambda *args, **kwargs: "theirs"
    assert compiled(X) == "theirs"


def test_is_traced_by_torchscript_in_its_scope(compiled: Any) -> None:
    outer = nn.Sequential(compiled)
    traced = torch.jit.trace(outer, X)
    assert traced(X).tolist() == [3.0, 6.0]


def test_is_inlined_by_a_function_around_it(module: Scale, compiled: Any) -> None:
    whole = tg.compile(lambda x: compiled(x, plus=1.0) * 2, backend="eager", fullgraph=True)
    assert whole(X).tolist() == [8.0, 14.0]
    module.register_forward_hook(lambda module, args, result: result + 100)
    assert whole(X).tolist() == [208.0, 214.0]


def test_a_class_with_a_call_of_its_own_keeps_it() -> None:
    class Counting(Scale):
        calls = 0

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            Counting.calls += 1
            return super().__call__(*args, **kwargs)

    compiled = tg.compile(Counting(), backend="eager")
    assert compiled(X).tolist() == [3.0, 6.0]
    assert Counting.calls == 1


def test_copies_are_called_alike(compiled: Any) -> None:
    assert copy.deepcopy(compiled)(X).tolist() == [3.0, 6.0]


def test_keeps_no_class_alive() -> None:
    class Short(Scale):
        pass

    compiled = tg.compile(Short(), backend="eager")
    compiled(X)
    died = weakref.ref(Short)
    del compiled, Short
    tg.reset()
    gc.collect()
    assert died() is None


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="ModuleCall"):
        _native.ModuleCall(3, {}, (), {}, ())  # type: ignore[arg-type]
    call = _native.ModuleCall(Scale, {}, torch_compat.OWN_HOOKS, {}, ())
    with pytest.raises(TypeError, match="must be the module"):
        call()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="not callable"):
        _native.ModuleCall(int, {}, torch_compat.OWN_HOOKS, {}, ())(3)


def test_without_a_dict_of_its_own_an_object_is_called_as_its_class_says() -> None:
    class Slotted:
        __slots__ = ()

        def __call__(self) -> str:
            return "called"

    assert _native.ModuleCall(Slotted, {}, torch_compat.OWN_HOOKS, {}, ())(Slotted()) == "called"


def test_a_compiled_closure_is_inlined_with_what_it_closes_over(module: Scale) -> None:
    inner = tg.compile(lambda x: x * module.factor, backend="eager")
    whole = tg.compile(lambda x: inner(x) + 1, backend="eager", fullgraph=True)
    whole(X).sum().backward()
    assert module.factor.grad is not None and module.factor.grad.item() == 3.0
    module.factor = nn.Parameter(torch.tensor(5.0))
    assert whole(X).tolist() == [6.0, 11.0]
