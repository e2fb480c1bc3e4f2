"""Program 1: two modules, one function. Entries by the module's type, hits without compiling, and explain."""

import logging
import warnings

import pytest
import torch
from tests.complaints import complains

import torchglass as tg
from torchglass.process import fallbacks
from torchglass.runtime import toolchain


class A(torch.nn.Module):
    def forward(self, x):
        return torch.exp(2 * x)


class B(torch.nn.Module):
    def forward(self, x):
        return torch.exp(-x)


def make():
    @tg.compile
    def f(x, mod):
        return torch.log(mod(x))

    return f


def test_each_module_has_its_entry_and_keeps_it():
    f, a, b, x = make(), A(), B(), torch.randn(4)
    entries = []
    for mod in (a, a, b, a, b):
        torch.testing.assert_close(f(x, mod), torch.log(mod(x)))
        entries.append(len(tg.explain(f).entries))
    assert entries == [1, 1, 2, 2, 2]


def test_explain_lists_both_entries_with_guards_and_code():
    f, x = make(), torch.randn(4)
    f(x, A())
    f(x, B())
    first, second = tg.explain(f).to_dict()["entries"]
    for entry, module in ((first, "A"), (second, "B")):
        checks = [g["check"] for g in entry["guards"]]
        assert any("mod" in check and module in check for check in checks), checks
        assert any(g["kind"] == "tensor" for g in entry["guards"])
        assert "def " in entry["transformed"]
        assert len(entry["graphs"]) == 1
    text = str(tg.explain(f))
    assert "entry 0" in text
    assert "entry 1" in text


@pytest.mark.parametrize("other", [torch.randn(4, dtype=torch.float64), torch.randn(3, 4), torch.randn(4, 2).t()[0]])
def test_inputs_that_fit_no_entry_recompile(other):
    f, a = make(), A()
    f(torch.randn(4), a)
    torch.testing.assert_close(f(other, a), torch.log(a(other)))
    explanation = tg.explain(f)
    assert len(explanation.entries) == 2
    assert explanation.record.recompiles


def test_when_compiling_fails_the_original_runs():
    def broken(gm, inputs):
        raise RuntimeError("this backend never works")

    def f(x):
        return torch.log(x) + 1

    compiled, x = tg.compile(f, backend=broken), torch.rand(4)
    with complains("this backend never works"):
        torch.testing.assert_close(compiled(x), f(x))
    torch.testing.assert_close(compiled(x), f(x))  # said once


def test_with_fullgraph_a_failure_raises():
    def broken(gm, inputs):
        raise RuntimeError("this backend never works")

    with pytest.raises(Exception, match="this backend never works"):
        tg.compile(lambda x: x + 1, backend=broken, fullgraph=True)(torch.rand(4))


@pytest.mark.parametrize("fails", ["backend", "compiler", "limit"])
def test_no_fallback_ends_a_program_that_makes_warnings_errors(fails, monkeypatch):
    """And it is told once, with the user's line; the record says what runs."""

    def f(x, n):
        return x.sin() * len(n)

    def broken(gm, inputs):
        raise RuntimeError("no such luck")

    def no_compiler():
        raise toolchain.NoCompiler("no C compiler: none")

    if fails == "compiler":
        monkeypatch.setattr(toolchain, "compiler", no_compiler)
    wishes = {"backend": broken} if fails == "backend" else {"options": {"cache_limit": 1 if fails == "limit" else 9}}
    compiled = tg.compile(f, **wishes)
    x = torch.rand(4, requires_grad=True)
    with warnings.catch_warnings(), complains("torchglass (runs|could)|entries|runs eagerly") as said:
        warnings.simplefilter("error")
        for n in ("a", "bc"):
            compiled(x, n).sum().backward()
    torch.testing.assert_close(x.grad, 3 * x.detach().cos())
    assert all("test_two_modules.py" in text for text in said) and len(said) == 1
    if fails == "compiler":
        (graph,) = tg.explain(compiled).to_dict()["entries"][0]["graphs"]
        assert not graph["kernels"] and set(graph["fallbacks"]) == {"forward", "backward"}
        assert "forward runs with ATen" in str(tg.explain(compiled))


@pytest.mark.complains("something runs eagerly")
def test_a_log_handler_that_raises_ends_nothing(monkeypatch):
    class Raises(logging.Handler):
        def emit(self, record):
            raise OSError("no room for a log")

    monkeypatch.setattr(fallbacks.log, "handlers", [*fallbacks.log.handlers, Raises()])
    fallbacks.say("something runs eagerly")
