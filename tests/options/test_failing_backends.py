"""A backend of the caller's that fails: the message blames it, and eager runs."""

from __future__ import annotations

import pytest
import torch

import torchglass as tg
from torchglass.errors import CompileError

x = torch.ones(3)


def double(a):
    return a * 2


def raises(gm, inputs):
    raise ValueError("boom")


def gives_a_number(gm, inputs):
    return 3


@pytest.mark.complains("runs eagerly")
@pytest.mark.parametrize(("backend", "words"), [(raises, "ValueError: boom"), (gives_a_number, "callable, not 3")])
def test_a_backend_that_fails_is_named(backend, words, caplog):
    with caplog.at_level("WARNING", "torchglass"):
        assert torch.equal(tg.compile(double, backend=backend)(x), double(x))
    (said,) = (record.getMessage() for record in caplog.records if "runs eagerly" in record.getMessage())
    assert said.startswith(f"`double` runs eagerly, since its backend `{backend.__name__}` failed: ") and words in said
    with pytest.raises(CompileError, match=f"its backend `{backend.__name__}` failed") as raised:
        tg.compile(double, backend=backend, fullgraph=True)(x)
    assert words in str(raised.value)
