"""Other ways to run a Triton kernel, as texts: max-autotune's search without a GPU."""

from __future__ import annotations

import json

from torchglass.runtime.triton_tune import MOST_WAYS, Way, alone, alternatives, stages_of, ways_of, with_way

TEXT = '''"""forward graph: 2 kernels."""

import triton
import triton.language as tl

@triton.jit
def tg_helper(x):
    return x

# walks its rows
@triton.jit
def kernel_0(x_ptr, y_ptr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    for start in range(0, 4096, RBLOCK):
        pass

# no walk
@triton.jit
def kernel_1(x_ptr, XBLOCK: tl.constexpr):
    pass

CONFIGURATIONS = {
    "kernel_0": {"signature": "*fp32:16 *fp32:16", "grid": ["XBLOCK"], "XBLOCK": 1, "RBLOCK": 1024, "num_warps": 4},
    "kernel_1": {"signature": "*fp32:16", "grid": ["XBLOCK"], "XBLOCK": 1024, "num_warps": 4},
}
'''
WALKS = {"signature": "*fp32:16 *fp32:16", "grid": ["XBLOCK"], "XBLOCK": 1, "RBLOCK": 1024, "num_warps": 4}
PLAIN = {"signature": "*fp32:16", "grid": ["XBLOCK"], "XBLOCK": 1024, "num_warps": 4}


def test_a_kernel_alone() -> None:
    assert "tg_helper" in alone(TEXT, "kernel_1") and "kernel_0(" not in alone(TEXT, "kernel_1")


def test_a_walk_has_stages_and_blocks() -> None:
    text = alone(TEXT, "kernel_0")
    ways = ways_of(WALKS, text, (512,))
    assert ways[0] == Way(json.dumps(WALKS), 1) and 1 < len(ways) <= MOST_WAYS
    assert {way.stages for way in ways} == {1, 2, 3, 4}
    changed = with_way(TEXT, "kernel_0", next(way for way in ways if way.stages == 3))
    assert "tl.range(0, 4096, RBLOCK, num_stages=3)" in changed and stages_of(changed) == 3
    assert stages_of(with_way(changed, "kernel_0", ways[0])) == 1


def test_only_the_named_kernel_changes() -> None:
    way = Way(json.dumps({**PLAIN, "XBLOCK": 512}), 1)
    changed = with_way(TEXT, "kernel_1", way)
    assert changed.replace('"XBLOCK": 512', '"XBLOCK": 1024') == TEXT


def test_a_block_without_a_mask_divides_the_points() -> None:
    odd = [one["XBLOCK"] for one, _ in alternatives(PLAIN, "", (3 * 1024,))]
    assert 512 in odd and 2048 not in odd
    masked = [one["XBLOCK"] for one, _ in alternatives(PLAIN, "", (3 * 1024 + 1,))]
    assert 2048 in masked
