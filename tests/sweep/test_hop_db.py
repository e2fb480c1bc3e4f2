"""A few rows of PyTorch's databases of higher-order operators, custom operators and autograd functions."""

from __future__ import annotations

import pytest
from tests.sweep import commands, hop_db
from tests.sweep.op_samples import WHOLE

ROWS = (
    "hop cond simple",
    "hop map nested",
    "hop scan simple",
    "hop while_loop simple",
    "hop invoke_subgraph simple",
    "hop auto_functionalize simple",
    "custom_op NumpySortCustomOp",
    "autograd_function SortGenVmapAutogradFunction",
    "autograd_function NumpySortAutogradFunction",
    "hop invoke_quant simple",
)


@pytest.mark.parametrize("name", ROWS)
def test_row_is_whole(name: str) -> None:
    row = hop_db.check(name, commands.arguments("", timeout=600).parse_args(["--backend", "aot_eager"]))
    assert set(row["counts"]) == {WHOLE}, row["why"]
