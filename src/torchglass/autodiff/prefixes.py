"""What follows from numbers alone where sizes change: masks of attention, for all sizes up to a largest one.

    mask = arange(s)[None] <= arange(s)[:, None]       what it is for s = 123 is the corner of what it is for 512

A tensor that is made element by element of counters and of one number everywhere is, for smaller sizes, the corner of
what it is for larger ones. So it is computed once, for sizes of ``LEAST`` and more; what is seen there holds for all up
to these, which is assumed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ..aten.sizes import hint_of
from ..records.size_environment import SizeEnvironment
from ..records.size_places import has_sizes, in_numbers, symbols_of
from ..records.sizes import Size, product, value
from ..records.symbolic_ints import size_of
from ..torch_compat import OpOverload, below_autograd, without_dispatch_modes
from .ops import CALL, Op, is_random, operands, substitute

aten = torch.ops.aten
LEAST = 512
"""So large is a size that is compiled at 16 or more, so that longer requests need no other mask."""

MADE: dict[OpOverload, tuple[int, ...]] = {
    aten.arange.default: (), aten.arange.start: (0,), aten.ones.default: (), aten.zeros.default: (),
    aten.new_ones.default: (), aten.new_zeros.default: (), aten.ones_like.default: (), aten.zeros_like.default: (),
    aten.scalar_tensor.default: (0,), aten.full.default: (1,), aten.full_like.default: (1,),
    aten.new_full.default: (2,),
}  # fmt: skip
"""Counters, and one number everywhere; with the places of the arguments that are values and no sizes: were one of them
a size, what is made for larger sizes would be other values.
"""

CORNERS = frozenset({
    aten.unsqueeze.default, aten.expand.default, aten.permute.default, aten.transpose.int, aten.alias.default,
    aten.clone.default, aten._to_copy.default, aten.index.Tensor, aten.cumsum.default,
})  # fmt: skip
"""What gives of a corner the corner of what it gives of the whole, beside what goes element by element."""


def value_up_to(op: Op, environment: SizeEnvironment, largest: int) -> torch.Tensor | None:
    """What ``op`` gives for sizes of which that of this compile, and all smaller ones, give the corner; None where it
    is not made so, or has more than ``largest`` elements then.
    """
    chain = _chain(op)
    if chain is None:
        return None
    names = symbols_of(one.val for one in chain)
    sizes = {name: hint_of(environment.named(name)) for name in names}
    at = next((at for at in _larger(sizes) if _most(chain, at) <= largest), None)
    if at is None:
        return None
    found = _computed(chain, at)
    if found is not None:
        for name, most in at.items():
            symbol: Size = size_of(environment.named(name))
            environment.decide(symbol, "<=", most, "a mask was looked at up to this size")
    return found


def _larger(sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Sizes up to which a mask may be looked at: ``LEAST`` and powers of two that are twice as large, or no smaller."""
    yield {name: max(LEAST if size >= 16 else 16, 1 << (2 * size - 1).bit_length()) for name, size in sizes.items()}
    yield {name: 1 << (size - 1).bit_length() for name, size in sizes.items()}


def _most(chain: list[Op], at: Mapping[str, int]) -> int:
    """Elements of the largest tensor at these sizes."""
    return max(value(product(map(size_of, one.val.shape)), at) for one in chain)


def _chain(op: Op) -> list[Op] | None:
    """The calls that make ``op``, in order; None where one of them is not of those that keep corners."""
    chain: dict[Op, None] = {}
    waiting = [op]
    while waiting:
        current = waiting[-1]
        if current in chain:
            waiting.pop()
            continue
        if not _keeps_corners(current):
            return None
        missing = [read for read in operands(current) if read not in chain]
        if missing:
            waiting += missing
        else:
            chain[waiting.pop()] = None
    return list(chain)


def _keeps_corners(op: Op) -> bool:
    target = op.target
    if op.kind is not CALL or not isinstance(target, OpOverload) or not isinstance(op.val, torch.Tensor):
        return False
    if target in MADE:
        return not any(isinstance(op.args[place], torch.SymInt) for place in MADE[target])
    if target in KEPT_IF:
        return KEPT_IF[target](op)
    pointwise = torch.Tag.pointwise in target.tags and not target._schema.is_mutable and not is_random(op)
    return target in CORNERS or (pointwise and not has_sizes((op.args, op.kwargs)))


def _begins_there(op: Op) -> bool:
    """Whether a slice begins at a place counted from the beginning, wherever it ends."""
    start, step = (*op.args[2:3], 0)[0], (*op.args[4:5], 1)[0]
    return isinstance(start, int) and start >= 0 and isinstance(step, int)


def _grows_at_its_end(op: Op) -> bool:
    """Whether of the parts that are joined the last alone is of a size that changes."""
    parts, dim = op.args[0], (*op.args[1:2], 0)[0]
    return all(isinstance(part.val.shape[dim], int) for part in parts[:-1])


def _is_unsqueezed(op: Op) -> bool:
    """Whether a view differs in dimensions of one element alone."""
    before, after = ([size_of(s) for s in val.shape if size_of(s) != 1] for val in (op.args[0].val, op.val))
    return before == after


KEPT_IF = {aten.slice.Tensor: _begins_there, aten.view.default: _is_unsqueezed, aten.cat.default: _grows_at_its_end}


def _counts_from_the_end(indices: list[torch.Tensor | None]) -> bool:
    """Whether an index names places by their distance from the end, which is another one for each size."""
    return any(index is not None and bool((index < 0).any()) for index in indices)


def _computed(chain: list[Op], at: Mapping[str, int]) -> torch.Tensor | None:
    """On the CPU, where a place beyond a table of fixed size is an error: on a GPU it would end its use."""
    values: dict[Op, torch.Tensor] = {}
    try:
        with without_dispatch_modes(), below_autograd():
            for op in chain:
                args: Any = substitute(in_numbers(op.args, at), values.__getitem__)
                if op.target is aten.index.Tensor and _counts_from_the_end(args[1]):
                    return None
                kwargs = {name: in_numbers(arg, at) for name, arg in op.kwargs.items()}
                kwargs |= {"device": torch.device("cpu")} if kwargs.get("device") is not None else {}
                values[op] = op.target(*args, **kwargs)
    except Exception:  # what it complains about, it will complain about when it runs
        return None
    return values[chain[-1]]
