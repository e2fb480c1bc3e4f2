"""Writes down every ATen call that reaches fake tensors, as a list of ``Op``.

Input: calls made while the recorder is the active dispatch mode (below autograd and functionalization, above fake
tensors). Output: ``recorder.ops``. With ``y = x.sin().mul_(2)`` it sees, and writes, ``sin(x)`` and ``mul(sin, 2)``.

What it leaves out: aliases without meaning to a pure graph (``detach``, ``alias``), queries that answer a plain value,
and copies onto a tensor of the same layout.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..aten.sizes import hints
from ..operators.control_flow import written_names
from ..process import interrupts
from ..records.origin import UNKNOWN, Origin
from ..records.symbolic_ints import sizes_of
from ..torch_compat import (
    DispatchMode,
    FakeTensor,
    FakeTensorMode,
    OpOverload,
    current_autograd_node,
    is_zero_tensor,
    number_of,
)
from . import custom_writes, fold
from .ops import CALL, CONSTANT, Op, view_root, walk

aten = torch.ops.aten


class AutodiffError(Exception):
    """The captured graph does something that autodiff cannot express; the caller runs it eagerly."""


SAME_VALUE: frozenset[OpOverload] = frozenset({aten.detach.default, aten.alias.default, aten.lift.default})

REFUSED: dict[OpOverload, str] = {
    aten.miopen_batch_norm.default: "writes running statistics without saying so",
    aten._unique.default: "gives as many numbers as the data say",  # fakes of PyTorch 2.11: one
}
"""Operators that do what their schemas or meta functions do not say."""

Rule = Callable[["Recorder", OpOverload, tuple[Any, ...], dict[str, Any]], Any]
SPECIAL: dict[OpOverload, Rule] = {}


def special(*targets: OpOverload) -> Callable[[Rule], Rule]:
    """Enter a rule for operators that are not written down as they are called."""

    def enter(rule: Rule) -> Rule:
        for target in targets:
            if target in SPECIAL or target in REFUSED or target in SAME_VALUE:
                raise AssertionError(f"{target} has a rule already")
            SPECIAL[target] = rule
        return rule

    return enter


class Recorder(DispatchMode):
    """The dispatch mode. ``stage`` sets where the following operations come from."""

    def __init__(self, fake_mode: FakeTensorMode) -> None:
        super().__init__()
        self.fake_mode = fake_mode
        self.ops: list[Op] = []
        self.transparent = False  # clones give their operand: see joint._wrap_input
        self.captured = ""
        self.origin = UNKNOWN
        self.region: int | None = None
        # autograd node -> name, origin and region of the captured node
        self.locate: Callable[[Any], tuple[str, Origin, int | None]] | None = None
        self.around: Any = None  # the autograd node that runs around a backward that is traced while it is needed
        self._op_of: dict[int, Op] = {}
        self._alive: list[Any] = []  # ids above stay taken

    # --- values ------------------------------------------------------------------------------------------------------
    def bind(self, value: torch.Tensor, op: Op) -> None:
        """From now on ``value`` stands for ``op``."""
        self._op_of[id(value)] = op
        self._alive.append(value)

    def op_of(self, value: torch.Tensor) -> Op:
        """The op whose value this is; a plain tensor becomes a constant of the graph."""
        op = self._op_of.get(id(value))
        if op is None:
            if isinstance(value, FakeTensor):
                raise AutodiffError(f"a tensor of shape {tuple(value.shape)} comes from outside the captured graph")
            op = self.constant(value, self.fake_mode.from_tensor(value, static_shapes=True))
            self.bind(value, op)
        return op

    def mark(self) -> int:
        """Where the bindings are now, for ``forget_since``."""
        return len(self._alive)

    def forget_since(self, mark: int) -> None:
        """Let go of the values that were bound since then, which nobody asks for again."""
        before = set(map(id, self._alive[:mark]))
        for value in self._alive[mark:]:
            if id(value) not in before:
                self._op_of.pop(id(value), None)
        del self._alive[mark:]

    def constant(self, value: torch.Tensor, fake: torch.Tensor) -> Op:
        """A tensor that the graph holds: an attribute of the graph module."""
        op = self.write(Op(CONSTANT, value, val=fake))
        self.bind(fake, op)
        return op

    def write(self, op: Op) -> Op:
        """Append an op, stamped with the place it comes from."""
        node = current_autograd_node()
        if node is not None and self.locate is not None and node is not self.around:
            op.captured, op.origin, op.region = self.locate(node)
            op.backward = True
        else:
            op.captured, op.origin = self.captured, self.origin
            op.backward = self.locate is not None
            op.region = self.region
        if isinstance(op.val, torch.Tensor) and op.val.layout is not torch.strided:
            raise AutodiffError(f"{op.target} gives a tensor of layout {op.val.layout}")
        self.ops.append(op)
        return op

    # --- calls -------------------------------------------------------------------------------------------------------
    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        interrupts.check()
        kwargs = kwargs or {}
        if func.namespace == "prim":
            return args[0].fake_device if func is torch.ops.prim.device.default else func(*args, **kwargs)
        if func in SAME_VALUE or (self.transparent and func is aten.clone.default):
            value = self._detached(args[0])
            self.bind(value, self.op_of(args[0]))
            return value
        rule = SPECIAL.get(func)
        if rule is not None:
            return rule(self, func, args, kwargs)
        if func in REFUSED:
            raise AutodiffError(f"{func} {REFUSED[func]}")
        return self.call(func, args, kwargs)

    def call(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call on fake tensors and write it down."""
        if func._schema.is_mutable:
            if func.namespace == "aten":
                raise AutodiffError(f"{func} writes to an operand and has no pure form")
            self._refuse_shared_writes(func, args, kwargs)
            return custom_writes.record(self, func, args, kwargs)
        value = func(*args, **kwargs)
        if isinstance(value, torch.Tensor):
            self.written(func, args, kwargs, value)
        elif isinstance(value, (tuple, list)) or not func._schema.returns:
            self._write_results(func, args, kwargs, value)
        return value

    def written(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], value: torch.Tensor) -> Any:
        """``value``, written down as the result of a call."""
        val = self._in_memory(value)
        self.bind(value, self.write(Op(CALL, func, self._operand(args), self._operands(kwargs), val)))
        return value

    def _write_results(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> None:
        """A call with several results: the call, then one item op for each tensor among them."""
        results = () if value is None else tuple(value)
        if results and not any(isinstance(result, (torch.Tensor, list)) for result in results):
            return
        self.write_tuple(func, self._operand(args), self._operands(kwargs), results)

    def write_tuple(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], results: tuple[Any, ...]) -> None:
        """A call of ops with several results."""
        self._write_items(self.write(Op(CALL, target, args, kwargs, results)), results)

    def _write_items(self, op: Op, results: Sequence[Any]) -> None:
        for index, result in enumerate(results):
            if isinstance(result, torch.Tensor):
                val = self._in_memory(result)
                self.bind(result, self.write(Op(CALL, operator.getitem, (op, index), None, val)))
            elif isinstance(result, list):
                self._write_items(self.write(Op(CALL, operator.getitem, (op, index), None, result)), result)

    def _in_memory(self, value: torch.Tensor) -> torch.Tensor:
        """What a value is in the graph: a zero tensor, to which autograd need not add, is zeros there."""
        if not is_zero_tensor(value):
            return value
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)

    def _detached(self, value: torch.Tensor) -> torch.Tensor:
        if isinstance(value, FakeTensor):
            return value.detach()
        return self.op_of(value).val.detach()

    def operands(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A call's arguments with the ops of their tensors."""
        return self._operand(args), self._operands(kwargs)

    def _refuse_shared_writes(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Whoever writes to copies must not have been given one memory twice."""
        names = written_names(func)
        given = {**dict(zip((p.name for p in func._schema.arguments), args)), **kwargs}
        roots = {name: [_place(op) for op in walk(self._operand(value))] for name, value in given.items()}
        every = [root for found in roots.values() for root in found]
        for name in names & roots.keys():
            if any(every.count(root) > 1 for root in roots[name]):
                raise AutodiffError(f"{func} writes to memory that it is given twice")

    def _operand(self, arg: Any) -> Any:
        if isinstance(arg, torch.Tensor):
            return self.op_of(arg)
        if isinstance(arg, list):
            return [self._operand(item) for item in arg]
        if isinstance(arg, tuple):
            return tuple(self._operand(item) for item in arg)
        return arg

    def _operands(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        return {name: self._operand(arg) for name, arg in kwargs.items()} if kwargs else kwargs


def _place(op: Op) -> tuple[Any, ...]:
    """The memory that a value shows. Views that overlap in part do not get here: capture ends the graph at them."""
    return view_root(op), op.val.storage_offset(), tuple(op.val.shape), op.val.stride()


@special(aten.lift_fresh.default, aten.lift_fresh_copy.default)
def _fresh_constant(recorder: Recorder, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``torch.tensor(data)`` in the user's code: a new tensor in each call, so a number becomes ``full``, more a
    clone.
    """
    data = args[0]
    if isinstance(data, FakeTensor):
        value = data.detach()
        recorder.bind(value, recorder.op_of(data))
        return value
    if data.numel() == 1 and not data.is_complex():
        layout = {"dtype": data.dtype, "device": data.device, "pin_memory": False}
        return recorder.call(aten.full.default, (list(data.shape), number_of(data)), layout)
    return recorder.call(aten.clone.default, (recorder.op_of(data).val,), {})


@special(aten._local_scalar_dense.default)
def _number(recorder: Recorder, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``x[torch.tensor(1)]``, ``clamp(x, 0, torch.tensor(2.5))``: the operator takes a number, and reads it from a
    tensor. Capture lets that pass where the tensor follows from numbers alone.
    """
    value = fold.value_of(recorder.op_of(args[0]), recorder.ops)
    return func(*args, **kwargs) if value is None else number_of(value)


@special(aten._efficientzerotensor.default)
def _zeros(recorder: Recorder, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A gradient that is zero whatever the data: autograd goes on with torch's zero tensor, whose product with infinity
    is zero, and the graph holds zeros.
    """
    value = func(*args, **kwargs)
    layout = {"dtype": value.dtype, "device": value.device, "pin_memory": False}
    return recorder.written(aten.full.default, (list(value.shape), 0), layout, value)


@special(aten.copy.default)
def _copy(recorder: Recorder, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``target.copy_(source)``: the source itself where the layouts agree, else what makes them agree."""
    target, source = args[0], args[1]
    if not isinstance(source, FakeTensor) or target.device != source.device:
        return recorder.call(func, args, kwargs)
    if source.dtype != target.dtype:
        source = recorder.call(aten._to_copy.default, (source,), {"dtype": target.dtype})
    if source.shape != target.shape:
        source = recorder.call(aten.expand.default, (source, list(target.shape)), {})
    if source.stride() == target.stride():
        value = source.detach()
        recorder.bind(value, recorder.op_of(source))
        return value
    return recorder.call(func, (target, source), {})


@special(aten.native_batch_norm_backward.default)
def _batch_norm_backward(recorder: Recorder, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """In training the gradient uses the batch's statistics: drop the running ones, which are overwritten by then."""
    if args[7]:
        args = (*args[:3], None, None, *args[5:])
    return recorder.call(func, args, kwargs)


@special(aten.cudnn_batch_norm_backward.default)
def _cudnn_batch_norm_backward(
    recorder: Recorder, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The gradient never reads the running statistics, which are overwritten by then."""
    return recorder.call(func, (*args[:3], None, None, *args[5:]), kwargs)


@special(aten.rrelu_with_noise_functional.default)
def _rrelu(recorder: Recorder, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Eager's kernel, which writes the noise, gives a contiguous result; this one keeps its operand's layout."""
    value, noise = recorder.call(func, args, kwargs)
    if not value.is_contiguous():
        value = recorder.call(aten.clone.default, (value,), {"memory_format": torch.contiguous_format})
    return value, noise


@special(aten._log_softmax.default)
def _log_softmax(recorder: Recorder, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """On a GPU in its parts, so that a backward need not keep the result: the logits in half precision, which are there
    anyway, and two numbers for each row say the same. GPT-2's result is 1.6 GB of float32, written and read.
    """
    x, dim = args[:2]
    if kwargs or len(args) != 3 or args[2] or x.device.type != "cuda" or x.dtype != torch.float32 or not x.dim():
        return recorder.call(func, args, kwargs)
    if not x.numel():  # nothing has no largest
        return recorder.call(func, args, kwargs)
    most = recorder.call(aten.amax.default, (x, [dim], True), {})
    below = recorder.call(aten.sub.Tensor, (x, most), {})
    total = recorder.call(aten.sum.dim_IntList, (recorder.call(aten.exp.default, (below,), {}), [dim], True), {})
    value = recorder.call(aten.sub.Tensor, (below, recorder.call(aten.log.default, (total,), {})), {})
    if value.stride() == torch.empty(value.shape, device="meta").stride():  # as eager's kernel lays it out
        return value
    return recorder.call(aten.clone.default, (value,), {"memory_format": torch.contiguous_format})


@special(aten._scaled_dot_product_cudnn_attention_backward.default)
def _cudnn_attention_backward(
    recorder: Recorder, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """With a gradient that lies as the result does. PyTorch keeps cuDNN's plans by the layouts of query, key and value
    alone (2.11, 2.13): one that was made for a gradient of another layout would read this one's wrongly.
    """
    grad, out = args[0], args[4]
    if sizes_of(grad.stride()) != sizes_of(out.stride()):
        steps = hints(out.stride())
        order = sorted(range(out.dim()), key=lambda k: (-steps[k], k))
        lying = recorder.call(aten.permute.default, (grad, order), {})
        lying = recorder.call(aten.clone.default, (lying,), {"memory_format": torch.contiguous_format})
        grad = recorder.call(aten.permute.default, (lying, [order.index(k) for k in range(len(order))]), {})
    return recorder.call(func, (grad, *args[1:]), kwargs)


@special(aten._efficient_attention_backward.default)
def _efficient_attention_backward(
    recorder: Recorder, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """PyTorch's meta function lacks a parameter and takes no call of its own operator (2.11, 2.13)."""
    query, key, value, bias = args[1:5]
    if kwargs.get("shared_storage_dqdkdv"):
        whole = query.new_empty((*query.shape[:-2], 3, *query.shape[-2:]))
        gradients = [whole.select(-3, k) for k in range(3)]
    else:
        gradients = [x.new_empty(x.shape) for x in (query, key, value)]
    of_bias = None
    if bias is not None and args[15]:
        columns = bias.shape[-1]
        of_bias = bias.new_empty((*bias.shape[:-1], -(-columns // 16) * 16))[..., :columns]
    results = (*gradients, of_bias)
    recorder.write_tuple(func, *recorder.operands(args, kwargs), results)
    return results
