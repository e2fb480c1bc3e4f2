"""Results of fake operators that are kept are those that the fake mode itself gives."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from torchglass.torch_compat import fake_of, fake_results, new_fake_mode


def described(mode: Any, result: Any, inputs: list[torch.Tensor]) -> list[Any]:
    """Metadata of each tensor, and which input's memory it lies in."""
    storages = [t.untyped_storage()._cdata for t in inputs]
    found = []
    for leaf in pytree.tree_leaves(result):
        if isinstance(leaf, torch.Tensor):
            storage = leaf.untyped_storage()
            base = storages.index(storage._cdata) if storage._cdata in storages else None
            found.append(
                (fake_results._described(mode, leaf), storage.nbytes(), base, torch._C._dispatch_key_set(leaf))
            )
        else:
            found.append(leaf)
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in (1, 2, 3))])
@pytest.mark.parametrize("samples", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_operators_of_the_database(part: int, samples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    for info in op_db[part::4]:
        if torch.float32 not in info.dtypes or "svd" in info.name or "linalg" in info.name:
            continue
        for sample in islice(info.sample_inputs("cpu", torch.float32), samples):
            mode = new_fake_mode()
            given = (sample.input, sample.args, sample.kwargs)
            tensors = [t for t in pytree.tree_leaves(given) if isinstance(t, torch.Tensor)]
            if any(t.layout is not torch.strided for t in tensors):
                continue
            faked = pytree.tree_map_only(torch.Tensor, lambda t, mode=mode: fake_of(mode, t), given)
            inputs = [t for t in pytree.tree_leaves(faked) if isinstance(t, torch.Tensor)]

            def call(info: Any = info, mode: Any = mode, faked: Any = faked) -> Any:
                with torch.no_grad(), mode:
                    return info.op(faked[0], *faked[1], **faked[2])

            try:
                first = described(mode, call(), inputs)
            except Exception:  # it needs data, or takes no fakes
                continue
            second = described(mode, call(), inputs)
            with monkeypatch.context() as patch:
                patch.setattr(fake_results, "key_of", lambda *_: None)
                without = described(mode, call(), inputs)
            assert first == second == without, info.name
            compared += 1
    assert compared > 67 * samples


def test_numbers_whose_values_say_nothing() -> None:
    mode = new_fake_mode()
    x = fake_of(mode, torch.ones(3, 4))
    whole = fake_of(mode, torch.ones(3, dtype=torch.uint8))
    for number in (2.5, 3.5, 2, True, 1j):
        assert (x * number).dtype is (torch.ones(3) * number).dtype
        assert (whole * number).dtype is (torch.ones(3, dtype=torch.uint8) * number).dtype
    before = len(fake_results._known)
    for number in range(100):
        x * (number + 0.5)
    assert len(fake_results._known) <= before + 1
