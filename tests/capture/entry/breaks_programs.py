"""Programs that break: at branches, in loops, in calls, within expressions and blocks, with iterators half read."""

# ruff: noqa: E741, UP031
from __future__ import annotations

import collections

import numpy as np
import torch

from ..tables import rand, table, tables

WHOLE, BREAKING, whole, breaking = tables()
PROGRAMS, program = table()


@breaking
def branch_on_value(x):
    y = x * 2
    if y.sum() > 0:
        y = y + 1
    else:
        y = y - 1
    return y * 3


@breaking
def item_and_print(x):
    total = x.sum().item()
    y = x + total
    return y * 2, total


@breaking
def loop_with_breaks(x):
    out = []
    for i in range(3):
        x = x + i
        if x.mean() > 1e9:
            break
        out.append(x)
    return out


@breaking
def break_in_call(x):
    def helper(v):
        if v.sum() > 0:
            return v + 1
        return v - 1

    y = x * 2
    z = helper(y)
    return z + y


@breaking
def break_inside_expression(x):
    return (x + 1) * float(x.sum()) + len([x]) * (x - 1)


@breaking
def break_in_try(x):
    try:
        y = x + x.sum().item()
    except ValueError:
        y = x
    return y * 2


@breaking
def nonzero_and_masks(x):
    return x[x > 0].sum(), (x > 0).nonzero().shape


@breaking
def list_built_around_breaks(x):
    return [x.sum().item(), *range(2), {"k": x.max().item()}], {1, *[int(x.sum())]}, {**{"a": float(x.sum())}, "b": 1}


@breaking
def nested_loops_with_breaks(x):
    out = []
    for i in range(2):
        for k, v in {"a": 1, "b": 2}.items():
            if x.sum() > v:
                out.append((i, k))
            x = x + v
    else:
        out.append("else")
    return out, x


@breaking
def iterators_across_breaks(x):
    it = iter(x)
    first = next(it)
    second = next(it) if first.sum() > 0 else first
    return first + second, list(it)


@breaking
def requires_grad_inside(x):
    w = x.clone().requires_grad_()
    y = w * 2
    if y.sum() > 0:
        y = y * 3
    return torch.autograd.grad(y.sum(), w)


@breaking
def formatted_tensors(x):
    return "%s" % x, f"{x}", repr(x), str([x])


@breaking
def numpy_arrays(x):
    a = x.numpy()
    return torch.from_numpy(a.copy()) + float((a * 2).sum()), a.tolist()


Pair = collections.namedtuple("Pair", "a b")


@program
def recursive_tree():
    Node = collections.namedtuple("Node", "value left right", defaults=(None, None))
    tree = Node(1, Node(2, Node(3)), Node(4))

    def total(node, x):
        return 0 if node is None else x * node.value + total(node.left, x) + total(node.right, x)

    return lambda x: total(tree, x), [(rand(2),), (rand(2, seed=1),)]


@program
def nested_structures():
    def apply(fn, s):
        if isinstance(s, torch.Tensor):
            return fn(s)
        if isinstance(s, dict):
            return {k: apply(fn, v) for k, v in s.items()}
        if isinstance(s, tuple) and hasattr(s, "_fields"):
            return type(s)(*(apply(fn, v) for v in s))
        if isinstance(s, (list, tuple)):
            return type(s)(apply(fn, v) for v in s)
        return s

    data = {"x": [rand(2), (rand(2, seed=1), 3)], "p": Pair(rand(2, seed=2), None), "s": "text"}
    return lambda s: apply(lambda t: t * 2, s), [(data,), (data,)]


@program
def aliasing_of_results():
    def f(x, box):
        y = x * 2
        box.append(y)
        d = {"y": y, "box": box, "again": [y, y]}
        d["again"][0].add_(1)
        return d, y is d["again"][1], d["box"] is box, box[-1] is y

    return f, [(rand(2), []), (rand(2, seed=1), [1])]


@program
def one_tuple_in_two_places():
    def f(x):
        pair, box = (x * 2, [1]), []
        box.append(pair)
        return pair, {"pair": pair}, (pair, 1), box

    def with_a_break(x):
        results = f(x)
        print("made")
        first, second, third, box = results
        return results, first is second["pair"], first is third[0], first is box[-1]

    return with_a_break, [(rand(2),), (rand(2, seed=1),)]


@program
def list_of_tensors_mutated():
    def f(xs):
        xs.sort(key=lambda t: t.shape[0])
        xs.reverse()
        xs[0] = xs[0] + 1
        xs.append(xs.pop(0))
        del xs[1:2]
        return xs, len(xs)

    return f, [([rand(2), rand(3), rand(1)],), ([rand(1), rand(2)],)]


@program
def sorting_by_tensors_values():
    return lambda xs: sorted(xs, key=lambda t: t.sum().item()), [([rand(2, seed=n) for n in range(3)],)] * 2


@program
def numpy_in_and_out():
    def f(x):
        a = x.numpy()
        b = np.sin(a) + 1
        c = torch.from_numpy(b)
        return c * x, a.shape, float(b.sum()), np.array([1.0, 2.0]) @ np.eye(2)

    return f, [(rand(2),), (rand(2, seed=1),)]


@program
def returns_of_many_kinds():
    def f(x):
        return {
            "t": (x, [x + 1, None]),
            3: slice(1, None),
            "r": range(3),
            "s": {1, 2},
            "f": frozenset("a"),
            "e": ...,
            "d": x.dtype,
            "z": 1j,
            "n": float("nan"),
            "c": collections.deque([1]),
        }

    return f, [(rand(2),)] * 2


@program
def inputs_returned_unchanged():
    def f(x, d, l):
        l.append(1)
        return x, d, l

    return f, [(rand(2), {"a": rand(1)}, []), (rand(2), {"a": rand(1)}, [2])]
