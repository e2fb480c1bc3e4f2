"""pdb stops in a printed Triton wrapper while it runs, with tensors on the GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.codegen.test_triton_text import printed
from tests.inspector.test_stepping import line_of, pdb

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_pdb_stops_in_a_triton_wrapper(tmp_path: Path) -> None:
    sources = printed(lambda a, b: a / (torch.abs(a) + 1) * b, [torch.ones(10), torch.ones(10)])
    (tmp_path / "forward_kernels.py").write_text(sources.texts["triton"])
    wrapper = tmp_path / "forward_wrapper.py"
    wrapper.write_text(sources.wrapper_text)
    said = pdb(wrapper, [(wrapper, line_of(wrapper, "return ("), "mul.device.type, bool(mul.isfinite().all())")])
    assert "('stop 1', 'cuda', True)" in said, said
    assert "result 0: torch.float32 [10]" in said
