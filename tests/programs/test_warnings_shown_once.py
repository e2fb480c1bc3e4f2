"""A warning of the program's that was shown once stays so: a compile does not make Python forget it."""

import warnings

import pytest
import torch

import torchglass as tg
from torchglass.process.warning_filters import ignored


def old() -> None:
    warnings.warn("this is old", stacklevel=1)


def training(x):
    return (x.exp() * x).sum()


def breaking(x):
    y = x * 2
    tg.graph_break()
    return y.sin()


@pytest.mark.parametrize("function", [training, breaking])
def test_a_compile_shows_no_warning_again(function, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = tg.compile(function)
    base = torch.ones(8, requires_grad=True) * 2
    compiled(torch.ones(9, requires_grad=True)).sum().backward()  # what is imported at the first may change filters
    shown: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        monkeypatch.setattr(warnings, "showwarning", lambda message, *rest, **named: shown.append(str(message)))
        for size in range(1, 4):
            old()
            compiled(base[:size]).sum().backward(retain_graph=True)
    assert shown == ["this is old"]


def test_only_what_is_named_is_ignored() -> None:
    filters = list(warnings.filters)
    with pytest.warns(UserWarning, match="another"), ignored("this is old"):
        old()
        warnings.warn("another", stacklevel=1)
    assert list(warnings.filters) == filters
