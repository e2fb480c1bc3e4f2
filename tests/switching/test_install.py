"""``tg.install``: torch.compile is ours where no other compiler is named, and PyTorch's where it is."""

import copy
import inspect
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.complaints import complaints
from torch import compile as by_name
from torch import nn

import torchglass as tg
from torchglass._native import CompiledFunction
from torchglass.backends import installing
from torchglass.process import fallbacks

x = torch.ones(2, 2)


@pytest.fixture(autouse=True)
def uninstalled_after() -> Iterator[None]:
    fallbacks.forget()
    yield
    tg.uninstall()


def sine(a: torch.Tensor) -> torch.Tensor:
    return a.sin() + 1


def is_ours(compiled: Any) -> bool:
    """With a GPU it is wrapped by a function that asks where tensors lie."""
    return any(type(one) is CompiledFunction for one in (compiled, getattr(compiled, "__wrapped__", None)))


def test_installed_and_not() -> None:
    assert not is_ours(torch.compile(sine))
    with tg.installed():
        assert is_ours(torch.compile(sine)) and is_ours(by_name(sine)) and is_ours(torch.compiler.compile(sine))
        assert is_ours(torch.compile(sine, backend="inductor"))
        assert is_ours(torch.compile(mode="reduce-overhead")(sine))
    assert not is_ours(torch.compile(sine)) and not is_ours(by_name(sine))


def test_what_wrapped_it_before_and_after_reaches_ours() -> None:
    def wrapped(function: Any) -> Any:
        return lambda *args, **kwargs: function(*args, **kwargs)

    before = wrapped(torch.compile)
    tg.install()
    after = wrapped(torch.compile)
    assert is_ours(before(sine)) and is_ours(after(sine))
    tg.uninstall()
    assert not is_ours(before(sine)) and not is_ours(after(sine))


def test_other_backends_are_pytorchs() -> None:
    graphs: list[Any] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    with tg.installed():
        for one in ("eager", "aot_eager", backend):
            compiled = torch.compile(sine, backend=one)
            assert not is_ours(compiled)
            torch.testing.assert_close(compiled(x), sine(x))
    assert len(graphs) == 1


def test_a_default_backend_that_was_set_is_followed() -> None:
    if not hasattr(torch.compiler, "set_default_backend"):
        pytest.skip("torch 2.13")
    torch.compiler.set_default_backend("eager")
    try:
        with tg.installed():
            assert not is_ours(torch.compile(sine)) and is_ours(torch.compile(sine, backend="inductor"))
    finally:
        torch.compiler.set_default_backend(None)


def test_functions_made_for_pytorchs_compiler_go_there() -> None:
    import functools

    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    with tg.installed():
        for one in (flex_attention, create_block_mask, functools.partial(flex_attention, scale=1.0)):
            assert not is_ours(torch.compile(one))


def test_modules_keep_their_class_and_need_no_unwrapping() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    with tg.installed():
        compiled = torch.compile(model)
    from torch._dynamo.eval_frame import OptimizedModule

    assert isinstance(compiled, nn.Sequential) and not isinstance(compiled, OptimizedModule)
    assert list(compiled.state_dict()) == list(model.state_dict())
    torch.testing.assert_close(compiled(x), model(x))
    twin = pickle.loads(pickle.dumps(compiled))
    torch.testing.assert_close(twin(x), model(x))
    torch.testing.assert_close(copy.deepcopy(compiled)(x), model(x))


def test_module_compile() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    expected = model(x)
    with tg.installed():
        model.compile(fullgraph=True)
    torch.testing.assert_close(model(x), expected)
    explanation = tg.explain(model._compiled_call_impl).to_dict()
    assert len(explanation["entries"]) == 1 and explanation["name"] == "Sequential"
    model(x).sum().backward()
    assert model[0].weight.grad is not None


def test_nested_and_in_threads() -> None:
    tg.install()
    tg.install()
    with tg.installed():
        pass
    assert is_ours(torch.compile(sine))
    tg.uninstall()
    assert not is_ours(torch.compile(sine))
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with tg.installed():
            entered.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    with tg.installed():
        thread.start()
        entered.wait(60)
    assert is_ours(torch.compile(sine))  # the other thread is inside still
    leave.set()
    thread.join()
    assert not is_ours(torch.compile(sine))


def test_what_is_compiled_stays_with_its_compiler() -> None:
    theirs = torch.compile(sine, backend="eager")
    with tg.installed():
        ours = torch.compile(sine)
        torch.testing.assert_close(theirs(x), sine(x))
    torch.testing.assert_close(ours(x), sine(x))
    assert len(tg.explain(ours).to_dict()["entries"]) == 1


def test_signature_and_pickle_of_torch_compile() -> None:
    before = inspect.signature(torch.compile)
    with tg.installed():
        assert inspect.signature(torch.compile) == before
        assert pickle.loads(pickle.dumps(torch.compile)) is torch.compile


@pytest.mark.complains("has no effect")
def test_modes_options_and_limits_of_inductor() -> None:
    limited = {"recompile_limit": 3} if "recompile_limit" in inspect.signature(torch.compile).parameters else {}
    with tg.installed(), complaints() as said:
        for mode in ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", "lite"):
            torch.compile(sine, mode=mode)
        for _ in range(2):
            torch.compile(sine, options={"epilogue_fusion": True, "shape_padding": True, "fallback_random": True})
        torch.compile(sine, options={"triton.cudagraphs": True, "max_autotune": True}, dynamic=None, **limited)
        with pytest.raises(RuntimeError, match="both"):
            torch.compile(sine, mode="default", options={})
    assert len([text for text in said if "shape_padding" in text]) == 1
    assert len([text for text in said if "'lite'" in text]) == 1 and len(said) == 3
    assert installing.translated(None, {"max_autotune": True}, 3) == ("max-autotune", {"cache_limit": 3})


@pytest.mark.complains("has no effect")
@pytest.mark.parametrize(
    ("wish", "complaint"),
    [({"mode": "bad"}, "Unrecognized mode=bad"), ({"options": {"nonsense": 1}}, "optimization option nonsense")],
)
def test_what_torch_compile_does_not_know_raises_as_it_does(wish: dict[str, Any], complaint: str) -> None:
    with tg.installed():
        with pytest.raises(RuntimeError, match=complaint):
            torch.compile(sine, **wish)
        with pytest.raises(RuntimeError, match=complaint):
            torch.compile(**wish)(sine)
        assert torch.compile(sine, options={"aggressive_fusion": True})(x).equal(sine(x))  # one of Inductor's


def test_devices_are_chosen_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the CPU for a device that is not ours, and meta for one that is."""
    monkeypatch.setattr(installing, "_other_devices", lambda: True)
    with tg.installed():
        function, model = torch.compile(sine), torch.compile(nn.Linear(2, 2))
    theirs: list[Any] = []

    def of_torch(original: Any, wishes: Any) -> Any:
        theirs.append(original)
        return original

    monkeypatch.setattr(installing, "of_torch", of_torch)
    torch.testing.assert_close(function(x), sine(x))
    expected = model(x)
    assert not theirs
    monkeypatch.setattr(installing, "DEVICES", ())
    torch.testing.assert_close(function(x), sine(x))
    torch.testing.assert_close(model(x), expected)
    function(x)
    assert len(theirs) == 2
    assert len(tg.explain(function).to_dict()["entries"]) == len(tg.explain(model).to_dict()["entries"]) == 1


def test_disable_is_honoured() -> None:
    with tg.installed():
        assert torch.compile(sine, disable=True) is sine


def test_a_replaced_torch_compile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", print)
    with pytest.raises(RuntimeError, match="before what replaced it"):
        tg.install()
    monkeypatch.undo()


def test_a_script_that_knows_nothing_of_us(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    told = "'CompiledFunction' in [type(one).__name__ for one in (c, c.__wrapped__)], c(torch.ones(2)).sum()"
    script.write_text(f"import torch\nc = torch.compile(lambda a: a + 1)\nprint({told})")
    command = [sys.executable, "-m", "torchglass", "run", "--dir", str(tmp_path / "glass"), "--install", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["True", "tensor(4.)"], done.stderr
