"""What guards ask, as a guard table, its evaluation in Python and its text answer it."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import math
import operator
from typing import Any

import pytest
import torch
from tests.native.guard_tables import (
    BUFFER,
    SELF,
    WEIGHT,
    Net,
    X,
    check_one,
    function_of,
    net_guards,
    remembered,
)
from torch import nn

from torchglass import _native
from torchglass.records.guards import CHECKS, Guard, TensorMeta
from torchglass.records.sources import (
    Attr,
    Cell,
    Computed,
    Constant,
    DictKey,
    Global,
    InstanceDict,
    Item,
    Local,
    Module,
    Source,
    TypeOf,
)
from torchglass.runtime.guards import (
    build_table,
    evaluate,
    explain_failure,
    global_state,
    scope_of,
    write,
)

pytestmark = pytest.mark.usefixtures("many_dicts")


@pytest.mark.parametrize(
    "value, expected, answer",
    [
        (1, 1, True),
        (1, True, False),
        (1, 1.0, False),
        (0.0, -0.0, False),
        (float("nan"), float("nan"), True),
        (complex(0.0, 0.0), complex(0.0, -0.0), False),
        ("a" * 2, "aa", True),
        ((1, (2.0,)), (1, (2.0,)), True),
        ((1, (2.0,)), (1, (2,)), False),
        (frozenset({1, "a"}), frozenset({"a", 1}), True),
        (frozenset({1}), frozenset({True}), False),
        (slice(0, 1), slice(0, 1, None), True),
        (range(3), range(0, 3), True),
        (2**100, 2**100, True),
        (None, None, True),
        (torch.float32, torch.float32, True),
        (torch.device("cpu"), torch.device("cpu"), True),
        (torch.device("cpu"), torch.device("meta"), False),
        (torch.Size([1, 2]), torch.Size([1, 2]), True),
        (torch.Size([1, 2]), (1, 2), False),
        ([1], [1], False),
    ],
)
def test_constants(value: Any, expected: Any, answer: bool) -> None:
    assert check_one(Guard(Local("a"), "constant", expected), value) is answer


def test_tensor_facts() -> None:
    base = torch.zeros(2, 3)
    guard = Guard(Local("a"), "tensor", TensorMeta.of(base))
    assert check_one(guard, torch.ones(2, 3))
    with torch.inference_mode():
        inference = torch.zeros(2, 3)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(base, torch.ones(2, 3))
        assert not check_one(guard, dual)
    others: list[Any] = [
        torch.zeros(2, 3, dtype=torch.float64),
        torch.zeros(2, 4),
        torch.zeros(2, 3, 1),
        torch.zeros(3, 2).T,
        torch.zeros(2, 3, requires_grad=True),
        torch.zeros(2, 3, device="meta"),
        nn.Parameter(torch.zeros(2, 3), requires_grad=False),
        torch.zeros(2, 3, dtype=torch.complex64).imag,
        torch.zeros(2, 3).to_sparse(),
        inference,
        base.view(2, 3) + torch.zeros(2, 3, requires_grad=True),
        None,
        "tensor",
        torch.Tensor,
    ]
    for other in others:
        assert not check_one(guard, other), other
    assert check_one(Guard(Local("a"), "tensor", TensorMeta.of(inference)), inference)
    conj = torch.zeros(2, dtype=torch.complex64).conj()
    assert TensorMeta.of(conj).flags == ("conj",)
    assert check_one(Guard(Local("a"), "tensor", TensorMeta.of(conj)), conj)
    assert not check_one(Guard(Local("a"), "tensor", TensorMeta.of(conj)), conj.resolve_conj())


def test_a_view_requires_grad_with_its_base(net: Net, x: torch.Tensor) -> None:
    """One made under no_grad has no gradient function and requires_grad is its base's: as Tensor.requires_grad says."""
    base = torch.zeros(4, 2, requires_grad=True)
    with torch.no_grad():
        view = base.t()
    guard = Guard(Local("a"), "tensor", TensorMeta.of(view))
    assert view.requires_grad and view.grad_fn is None and check_one(guard, view)
    assert not check_one(guard, torch.zeros(2, 4).t().contiguous().t()) and not check_one(guard, view.detach())

    with torch.no_grad():
        base = torch.zeros_like(net.b)
        net.b = base.view_as(base)
    table, guards = remembered(net, x), net_guards(net, x)
    base.requires_grad_()
    assert table.check((net, x)) is None
    assert explain_failure(guards, scope_of(Net.forward, (net, x))) is not None


def test_strides_that_no_kernel_reads() -> None:
    guard = Guard(Local("a"), "tensor", TensorMeta.of(torch.zeros(1, 3)))
    assert check_one(guard, torch.zeros(4, 6)[:1, :3])
    assert not check_one(guard, torch.zeros(4, 6)[:1, ::2])
    assert check_one(Guard(Local("a"), "tensor", TensorMeta.of(torch.zeros(0, 3))), torch.zeros(3, 0).T)


def test_sizes_of_any_number() -> None:
    from dataclasses import replace

    meta = replace(TensorMeta.of(torch.zeros(2, 3)), shape=(None, 3))
    assert check_one(Guard(Local("a"), "tensor", meta), torch.zeros(7, 3))
    assert not check_one(Guard(Local("a"), "tensor", meta), torch.zeros(7, 4))


def test_tensor_subclasses_by_exact_type() -> None:
    class Tagged(torch.Tensor):
        pass

    tagged = torch.zeros(2).as_subclass(Tagged)
    assert check_one(Guard(Local("a"), "tensor", TensorMeta.of(tagged)), tagged)
    assert not check_one(Guard(Local("a"), "tensor", TensorMeta.of(torch.zeros(2))), tagged)


def test_same_and_distinct() -> None:
    def f(a, b, c):
        return None

    a, b, c = Local("a"), Local("b"), Local("c")
    table = build_table([Guard(a, "same", b), Guard(None, "distinct", (a, c))], [], f)
    x, y = object(), object()
    for _ in range(3):
        assert table.check((x, x, y)) == ()
        assert table.check((x, y, y)) is None
        assert table.check((x, x, x)) is None


def test_computed_numbers(net: Net, x: torch.Tensor) -> None:
    """``(self.scale + 1) % x``: of an attribute that the table remembers, and of an argument."""
    scale = Item(InstanceDict(SELF), "scale")
    sum_ = Computed(operator.add, "{} + {}", (scale, Constant("1", 1)))
    remainder = Guard(Computed(operator.mod, "{} % {}", (sum_, X)), "constant", 1)
    root = Guard(Computed(math.sqrt, "math.sqrt({})", (scale,)), "constant", 2.0)
    least = Guard(Computed(min, "min({}, {})", (scale, X)), "constant", 3)
    smaller = Computed(operator.le, "{} <= {}", (sum_, X))
    guards = [Guard(SELF, "identity", net), *(Guard(s, "type", int) for s in (scale, X)), remainder]
    relations = [[*guards[:3], Guard(smaller, "constant", answer)] for answer in (True, False)]
    for checked in (guards, [*guards, root], [*guards, least], *relations):
        table = build_table(checked, [scale], Net.forward)
        text = write(checked, [scale], ("self", "x"))
        module = {"text": text.expected}
        exec(text.text.replace("G, C, E = names_of(__file__)", "E = text"), module)
        answers = set()
        for net.scale, divisor in (
            (4, 2),
            (4, 4),
            (4, 0),
            (-1, 2),
            (3, 3),
            (4, 2),
            (4, 2),
            (4, 2),
            (6, 2),
            (4, 0),
            (4, 5),
            (4, 2),
        ):
            scope = scope_of(Net.forward, (net, divisor))
            holds = all(evaluate(guard, scope) for guard in checked)
            assert table.check((net, divisor)) == ((net.scale,) if holds else None)
            if divisor:
                assert module["check"](net, divisor) == table.check((net, divisor))
            assert (explain_failure(checked, scope) is None) is holds
            answers.add(holds)
        assert answers == {True, False}
    text = write(guards, [scale], ("self", "x")).text
    assert "(scale + 1) % x" in text and str(remainder.source) == "(self.__dict__['scale'] + 1) % x"
    assert "import math\n" in write([root], []).text


def test_sizes_are_read_anew(x: torch.Tensor) -> None:
    """A relation of sizes looks at the tensor, which may be resized in place, or be one of more dimensions."""

    def f(a: torch.Tensor, b: torch.Tensor) -> None: ...

    sizes = [Item(Attr(Local(name), "shape"), 0) for name in "ab"]
    plain = TensorMeta.of(torch.ones(4, 2))
    guards = [Guard(Local(n), "tensor", dataclasses.replace(plain, shape=(None, 2), strides=(2, 1))) for n in "ab"]
    guards.append(Guard(Computed(operator.le, "{} <= {}", tuple(sizes)), "constant", True))
    for fetch in ([], sizes):
        table = build_table(guards, fetch, f)
        a, b = torch.ones(4, 2), torch.ones(5, 2)
        for rows, holds in ((4, True), (6, False), (5, True), (1, True), (7, False)):
            a.resize_(rows, 2)
            for _ in range(3):
                found = table.check((a, b))
                assert found == ((tuple(s for s in (rows, 5)) if fetch else ()) if holds else None)
        assert table.check((torch.ones(2, 2, 2), b)) is None
        assert table.check((3, b)) is None


NUMBERS = (0, 1, -1, 7, -7, 2**31, -(2**63), 2**63 - 1, 2**63, -(2**70), True, 2.5)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "floordiv", "mod"])
def test_computed_as_python_computes(name: str) -> None:
    """Machine integers where 64 bits hold them, else Python's."""
    function, nodes = getattr(operator, name), (("local", -1, 0), ("local", -1, 1), ("local", -1, 2))
    for relation in (operator.lt, operator.le, operator.eq, operator.ne, operator.ge, operator.gt):
        operations = ((0,), (1,), (function, 2), (2,), (relation, 2))
        table = _native.GuardTable(nodes, (), (("computed", operations, True),), None, ())
        for a, b in itertools.product(NUMBERS, NUMBERS):
            try:
                found = function(a, b)
            except ZeroDivisionError:
                assert table.check((a, b, 0)) is None
                continue
            for bound in (found, 0, 2**63 - 1):
                assert (table.check((a, b, bound)) is not None) == relation(found, bound)


@pytest.mark.parametrize("operations", [(), ((0,), (0,)), ((operator.add, 2),), ((0,), (len.__call__, 1)), ((7,),)])
def test_malformed_computations_are_refused(operations: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        _native.GuardTable((("local", -1, 0),), (), (("computed", operations, 1),), None, ())


def test_distinct_of_remembered_and_fresh(net: Net, x: torch.Tensor) -> None:
    table = remembered(net, x, [*net_guards(net, x)[:5], Guard(None, "distinct", (X, WEIGHT, BUFFER))])
    assert table.check((net, torch.ones(2))) is not None
    assert table.check((net, net.b)) is None
    assert table.check((net, x)) is not None


def test_global_state() -> None:
    guard = Guard(None, "global_state", global_state())
    table = build_table([guard], [], function_of())
    scope = scope_of(function_of(), (0,))

    class Mode(torch.overrides.TorchFunctionMode):
        pass

    def holds() -> bool:
        answer = table.check((0,)) is not None
        assert answer is evaluate(guard, scope)
        return answer

    assert holds()
    for context in (
        torch.no_grad(),
        torch.inference_mode(),
        torch.autocast("cpu", torch.bfloat16),
        torch.device("meta"),
        Mode(),
        torch._C.DisableTorchFunction(),
        torch._C.DisableTorchFunctionSubclass(),
    ):
        with context:
            assert not holds(), context
            with context if isinstance(context, (torch.device, Mode)) else torch.enable_grad():
                inner = build_table([Guard(None, "global_state", global_state())], [], function_of())
                assert inner.check((0,)) is not None
        assert holds()
    torch.set_default_dtype(torch.float64)
    assert not holds()
    torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(True, warn_only=True)
    failure = explain_failure([guard], scope)
    assert not holds() and failure is not None and "deterministic was 0, is 2" in str(failure)
    torch.use_deterministic_algorithms(False)
    assert holds()
    torch.func.vmap(lambda t: (t, [None for _ in [0] if holds()])[0])(torch.zeros(2))


def test_functorch_transforms_are_another_state() -> None:
    guard = Guard(None, "global_state", global_state())
    table = build_table([guard], [], function_of())
    seen = []

    def inner(t: torch.Tensor) -> torch.Tensor:
        seen.append(table.check((0,)))
        return t.sum()

    torch.func.vmap(inner)(torch.zeros(2, 2))
    torch.func.grad(inner)(torch.zeros(2))
    assert seen == [None, None]


def test_default_device_counts_by_its_device() -> None:
    with torch.device("meta"):
        table = build_table([Guard(None, "global_state", global_state())], [], function_of())
    with torch.device("meta"):
        assert table.check((0,)) == ()
    with torch.device("cpu"):
        assert table.check((0,)) is None


def test_refuses_malformed_guards() -> None:
    with pytest.raises(ValueError, match="unknown check 'nonsense'"):
        build_table([Guard(Local("a"), "nonsense", 1)], [], function_of())
    with pytest.raises(TypeError, match="expects a type"):
        build_table([Guard(Local("a"), "type", 1)], [], function_of())
    with pytest.raises(ValueError, match="needs a source"):
        build_table([Guard(None, "type", int)], [], function_of())
    for bad in ((("item", -1, 0),), (("local", -1, -1),), (("nonsense", -1, 0),), (("local", -1, 0), ("item", 1, 0))):
        with pytest.raises(ValueError):
            _native.GuardTable(bad, (), (), None, ())
    with pytest.raises(ValueError, match="no node 3"):
        _native.GuardTable((("local", -1, 0),), (), (), None, (3,))


def test_a_short_argument_tuple_is_a_miss(net: Net, x: torch.Tensor) -> None:
    assert remembered(net, x).check((net,)) is None


def test_sets_are_compared_by_members_and_their_types() -> None:
    guard = Guard(Local("a"), "constant", {1, 2})
    assert check_one(guard, {1, 2})
    for other in ({1.0, 2}, {1}, {1, 2, 3}, {True, 2}, frozenset({1, 2}), [1, 2]):
        assert not check_one(guard, other)
    table = build_table([guard], [], lambda a: None)
    value = {1, 2}
    for _ in range(3):
        assert table.check((value,)) is not None
    value.add(3)
    assert table.check((value,)) is None


def test_numpy_scalars_are_compared_by_value() -> None:
    numpy = pytest.importorskip("numpy")
    assert check_one(Guard(Local("a"), "constant", numpy.float32(2)), numpy.float32(2))
    assert check_one(Guard(Local("a"), "constant", numpy.float32("nan")), numpy.float32("nan"))
    for other in (numpy.float32(3), numpy.float64(2), 2.0):
        assert not check_one(Guard(Local("a"), "constant", numpy.float32(2)), other)
    assert not check_one(Guard(Local("a"), "constant", numpy.float32(0.0)), numpy.float32(-0.0))


# ------------------------------------------------------------------------------------------------ text


def test_rendered_text_is_python_and_names_what_it_checks(net: Net, x: torch.Tensor) -> None:
    text = write(net_guards(net, x), [WEIGHT, BUFFER], ("self", "x")).text
    tree = ast.parse(text)
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef))
    assert [argument.arg for argument in function.args.args] == ["self", "x"]
    assert "# the method's object  (net.py:12)" in text
    assert "type(self) is" in text and "['scale'] == 3" in text
    assert "return (weight, b,)" in text


def test_every_check_renders(net: Net) -> None:
    a = Local("a")
    expected: dict[str, Any] = {
        "type": int,
        "identity": net,
        "constant": (1, float("inf"), torch.float32, torch.device("cpu"), torch.Size([1]), slice(1), len),
        "tensor": TensorMeta.of(torch.zeros(2)),
        "length": 3,
        "dict_keys": ("a", 1),
        "dict_has": "class",
        "dict_lacks": net,
        "has_attr": "x",
        "lacks_attr": "y",
        "class_has": ("forward", Net.forward),
        "class_kind": ("scale", int),
        "class_lacks": "__bool__",
        "mro": Net.__mro__,
        "names": (("relu", torch.nn.functional.relu),),
        "same": Attr(a, "class"),
        "distinct": (a, Item(a, "not an identifier"), Item(a, 0), DictKey(a, 2), TypeOf(a), Cell("c"), Global("g")),
        "global_state": global_state(),
    }
    assert set(expected) == set(CHECKS)
    sources: list[Source | None] = [None if name in ("distinct", "global_state") else a for name in expected]
    guards = [Guard(source, name, value) for source, (name, value) in zip(sources, expected.items())]
    ast.parse(write(guards, [Item(a, 0), Module("torch.nn"), Attr(a, "class")]).text)
