"""What it costs to compute an operation again in backward, as a table by operator family.

Input: an op. Output: its ``Family``. The price is in bytes moved per byte of result, so that it can be weighed against
the bytes that saving the result would keep: ``gelu`` costs about half of what writing its result costs once it is fused
into a kernel that reads its operand anyway; a matmul is never done twice. What backward needs as the operand of a
matmul is written once more, for ``ALONE`` of its bytes on top.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..aten.sizes import hint_of
from ..torch_compat import OpOverload
from .ops import CALL, Op, bytes_of, is_random, is_view, operands

NEVER = math.inf
ALONE = 0.25
"""Of its bytes, what computing a matmul's operand again costs on top: it is written and read once more. Chosen, not
measured: at the whole of its bytes BERT saved all that eager saves (commit 4ad0229).
"""


@dataclass(frozen=True)
class Family:
    """A class of operators. ``price`` is paid per byte of result, ``fuses`` whether a kernel can take it in,
    ``reason`` says in a saved tensor's record why it is not computed again.
    """

    name: str
    price: float
    fuses: bool
    reason: str


# Prices were chosen, not measured. What is cheap costs little, but more than a view: between cuts that save as many
# bytes the one is taken that computes less twice. 0.4 is below 1, so that one gelu is computed again rather than saved,
# and three in a row are not.
FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family("view", 0.0, True, "a view"),
        Family("creation", 0.0, True, "made from constants"),
        Family("cheap", 0.03, True, "cheap arithmetic"),
        Family("costly", 0.4, True, "transcendental arithmetic"),
        Family("normalization", 0.4, True, "a normalization"),
        Family("reduction", NEVER, True, "a reduction reads much more than it writes"),
        Family("gather", NEVER, False, "indexing reads memory at random"),
        Family("matmul", NEVER, False, "matrix products are never computed twice"),
        Family("convolution", NEVER, False, "convolutions are never computed twice"),
        Family("attention", NEVER, False, "attention is never computed twice"),
        Family("random", NEVER, False, "random numbers are drawn once"),
        Family("other", NEVER, False, "not known to be cheap"),
    )
}

MEMBERS: dict[str, str] = {
    "creation": "full zeros ones empty arange scalar_tensor full_like zeros_like ones_like new_zeros new_ones "
    "new_full new_empty empty_like eye linspace new_empty_strided empty_strided",
    "cheap": "add sub mul div neg abs sign relu threshold clamp clamp_min clamp_max maximum minimum where "
    "masked_fill eq ne lt le gt ge logical_and logical_or logical_not logical_xor bitwise_and bitwise_or "
    "bitwise_not bitwise_xor _to_copy clone copy square reciprocal fill floor ceil round trunc rsub "
    "addcmul addcdiv leaky_relu hardtanh isnan isinf isfinite lerp triu tril cat stack constant_pad_nd "
    "threshold_backward relu6 hardsigmoid hardswish floor_divide remainder fmod lift_fresh_copy signbit "
    "heaviside sgn nan_to_num bitwise_left_shift bitwise_right_shift __lshift__ slice_scatter "
    "select_scatter flip roll upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d "
    "_upsample_nearest_exact2d _upsample_nearest_exact3d",
    "costly": "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt pow sin cos tan sinh cosh tanh asin acos atan atan2 "
    "sigmoid erf erfc gelu silu softplus mish elu selu celu log_sigmoid_forward gelu_backward "
    "silu_backward sigmoid_backward tanh_backward logit hypot xlogy",
    "normalization": "native_layer_norm native_group_norm _fused_rms_norm",
    "reduction": "sum mean var std amax amin max min argmax argmin prod any all norm var_mean std_mean logsumexp "
    "linalg_vector_norm cumsum cumprod _softmax _log_softmax native_batch_norm "
    "_native_batch_norm_legit_functional _native_batch_norm_legit sort topk",
    "gather": "embedding gather index index_select scatter scatter_add index_put index_add take take_along_dim",
    "matmul": "mm bmm addmm baddbmm addbmm addmv mv dot vdot matmul linear einsum _addmm_activation",
    "convolution": "convolution _convolution convolution_overrideable mkldnn_convolution cudnn_convolution",
    "attention": "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention "
    "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention "
    "_scaled_dot_product_fused_attention_overrideable _scaled_dot_product_attention_math_for_mps",
}
"""Which ATen operators belong to a family, by name without overload."""


def _enter(members: dict[str, str]) -> dict[str, Family]:
    table: dict[str, Family] = {}
    for family, names in members.items():
        for name in names.split():
            if name in table:
                raise AssertionError(f"{name} is in two recompute families")
            table[name] = FAMILIES[family]
    return table


FAMILY_OF: dict[str, Family] = _enter(MEMBERS)
CHEAP_POWERS = (-1, 0, 1, 2, 3, 4)


def family(op: Op) -> Family:
    """The family of a call; an item of a tuple counts as the call itself."""
    while op.is_item:
        op = op.args[0]
    if is_view(op):
        return FAMILIES["view"]
    if is_random(op):
        return FAMILIES["random"]
    return family_of(op.target, op.args) if op.kind is CALL else FAMILIES["other"]


def family_of(target: Any, args: Sequence[Any]) -> Family:
    """The family of a call that is neither an item nor draws random numbers."""
    if not isinstance(target, OpOverload) or target.namespace != "aten":
        return FAMILIES["other"]
    if target.is_view:
        return FAMILIES["view"]
    if target is torch.ops.aten.pow.Tensor_Scalar and args[1] in CHEAP_POWERS:
        return FAMILIES["cheap"]
    return FAMILY_OF.get(target._schema.name[6:], FAMILIES["other"])


FLOPS_PER_BYTE = 20.0  # floating-point operations that take as long as moving one byte, on CPUs and GPUs alike


def effort(op: Op) -> float:
    """What running ``op`` costs, in bytes moved: an estimate to rank operations by, for ``memory_budget``."""
    kind = family(op)
    if op.kind is not CALL or op.is_item or kind.price == 0:
        return 0.0
    moved = float(sum(bytes_of(read) for read in operands(op)) + bytes_of(op))
    work = WORK.get(kind.name)
    return moved if work is None else moved + work(op) / FLOPS_PER_BYTE


def _matmul_work(op: Op) -> float:
    matrices = [read.val for read in operands(op)][-2:]
    return 2.0 * hint_of(op.val.numel()) * hint_of(matrices[0].shape[-1])


def _convolution_work(op: Op) -> float:
    weight = operands(op)[1].val
    return 2.0 * hint_of(op.val.numel()) * hint_of(weight.numel()) / max(hint_of(weight.shape[0]), 1)


def _attention_work(op: Op) -> float:
    query, key = (read.val for read in operands(op)[:2])
    return 4.0 * hint_of(query.numel()) * hint_of(key.shape[-2])


WORK = {"matmul": _matmul_work, "convolution": _convolution_work, "attention": _attention_work}
"""Floating-point operations by family, where they count for more than the bytes."""
