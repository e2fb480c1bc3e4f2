"""All of ``torch.nn.functional`` by name, in one graph and like eager: PyTorch's samples, or a call written here."""

import pytest
import torch
import torch.nn.functional as F
from tests.sweep.op_db import Plan, samples_of
from tests.sweep.op_samples import WHOLE, judge
from torch.testing._internal.common_methods_invocations import SampleInput, op_db

# Public names that are no operations on tensors, and those that need a GPU.
NO_OPERATIONS = frozenset(
    ["Optional", "assert_int_or_pair", "boolean_dispatch", "handle_torch_function", "has_torch_function",
     "has_torch_function_unary", "has_torch_function_variadic", "grouped_mm", "scaled_grouped_mm", "scaled_mm"]
)  # fmt: skip
BREAKS = dict.fromkeys(("ctc_loss",), "needs the data of a tensor")


def x(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), requires_grad=True)


WRITTEN = {
    **{f"adaptive_max_pool{n}d_with_indices": (x(1, 2, *[6] * n), 3) for n in (1, 2, 3)},
    **{f"max_pool{n}d_with_indices": (x(1, 2, *[6] * n), 2) for n in (1, 2, 3)},
    **{f"fractional_max_pool{n}d_with_indices": (x(1, 2, *[6] * n), 2, 3) for n in (2, 3)},
    **{f"lp_pool{n}d": (x(1, 2, *[6] * n).abs(), 2.0, 2) for n in (1, 2, 3)},
    **{f"{name}_": (x(3, 4) * 2,) for name in ("celu", "elu", "hardtanh", "leaky_relu", "relu", "rrelu", "selu")},
    "threshold_": (x(3, 4) * 2, 0.1, 0.5),
    "affine_grid": (x(1, 2, 3), [1, 1, 4, 4]),
    "conv_tbc": (x(5, 2, 3), x(2, 3, 4), x(4)),
    "dropout1d": (x(2, 3, 4), 0.5),
    "fold": (x(1, 8, 9), (4, 4), 2),
    "gumbel_softmax": (x(3, 4), 0.5, True),
    "log_softmax": (x(3, 4), 1),
    "native_channel_shuffle": (x(1, 4, 2, 2).detach(), 2),
    "sigmoid": (x(3, 4),),
    "softmax": (x(3, 4), -1),
    "tanh": (x(3, 4),),
    "upsample": (x(1, 2, 4, 4), None, 2),
}


def in_place(function):
    """A leaf that requires grad may not be written to."""
    return lambda leaf, *args: function(leaf * 1, *args)


NAMES = [n for n in dir(F) if n[0] != "_" and callable(getattr(F, n)) and not isinstance(getattr(F, n), type)]
SAMPLED = {op.name.removeprefix("nn.functional."): op for op in reversed(op_db) if op.name.startswith("nn.functional.")}


@pytest.mark.parametrize("name", [n for n in NAMES if n not in NO_OPERATIONS])
def test_like_eager(name):
    if name in SAMPLED:
        operator = SAMPLED[name]
        dtype = "float32" if operator.supports_dtype(torch.float32, "cpu") else "int64"
        samples = [sample for _, sample in samples_of(operator, Plan("eager", dtype, samples=4))]
    else:
        operator = in_place(getattr(F, name)) if name.endswith("_") else getattr(F, name)
        first, *rest = WRITTEN[name]
        samples = [SampleInput(first, args=tuple(rest))]
    verdicts = [judge(operator, [sample], "eager", backward=name != "native_channel_shuffle") for sample in samples]
    breaks = [verdict.why for verdict in verdicts if verdict.result != WHOLE]
    assert bool(breaks) == (name in BREAKS) and all(BREAKS[name] in why for why in breaks), breaks
