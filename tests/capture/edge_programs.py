"""More of the same, at the edges of Python and PyTorch: what breaks must be right too."""

# ruff: noqa
from __future__ import annotations

import collections, contextlib, copy, dataclasses, functools, io, itertools, math, operator, sys, threading, time, types
import typing, warnings, weakref

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from .tables import rand, table
from .user_programs import mlp

PROGRAMS, program = table()


@program
def inference_mode_block():
    def f(x):
        with torch.inference_mode():
            y = x * 2
            z = y + 1
        return y.is_inference(), z.is_inference(), y + 0, x.is_inference()

    return f, [(rand(2),), (rand(2, seed=1),)]


@program
def inference_mode_decorator():
    net = mlp(3, 2)

    @torch.inference_mode()
    def f(x):
        return net(x)

    return lambda x: (f(x).requires_grad, f(x).is_inference()), [(rand(2, 3),)] * 2


@program
def except_star_groups():
    def f(x):
        log = []
        try:
            raise ExceptionGroup("g", [ValueError("a"), TypeError("b"), ValueError("c")])
        except* ValueError as eg:
            log.append(("v", [str(e) for e in eg.exceptions]))
        except* TypeError as eg:
            log.append(("t", len(eg.exceptions)))
        return x + len(log), log

    return f, [(rand(2),)] * 2


class Key:
    def __init__(self, a, b):
        self.a, self.b = a, b

    def __hash__(self):
        return hash((self.a, self.b))

    def __eq__(self, other):
        return isinstance(other, Key) and (self.a, self.b) == (other.a, other.b)


@program
def keys_with_their_own_hash():
    table = {Key(1, 2): 10, Key(3, 4): 20}

    def f(x, a, b):
        fresh = {Key(0, 0): 1}
        fresh[Key(0, 0)] = 2
        fresh[Key(a, b)] = 3
        return x * table.get(Key(a, b), 1), len(fresh), Key(1, 2) in table, len({Key(1, 1), Key(1, 1), Key(a, a)})

    return f, [(rand(2), 1, 2), (rand(2), 3, 4), (rand(2), 5, 6)]


class Doubling(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out * 2 if func is torch.sin else out


@program
def torch_function_mode():
    def f(x):
        with Doubling():
            y = torch.sin(x) + 1
        return y, torch.sin(x)

    return f, [(rand(2),)] * 2


class Tagged:
    def __init__(self, t):
        self.t = t

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        args = [a.t if isinstance(a, Tagged) else a for a in args]
        return func(*args, **(kwargs or {})) + 100


@program
def torch_function_of_a_class():
    return lambda x: (torch.add(Tagged(x), 1), torch.sin(x)), [(rand(2),)] * 2


class MyTensor(torch.Tensor):
    pass


@program
def tensor_subclass():
    def f(x):
        y = x.as_subclass(MyTensor)
        z = y * 2
        return type(z).__name__, z.as_subclass(torch.Tensor)

    return f, [(rand(2),)] * 2


@program
def tensor_subclass_as_input():
    return lambda x: (type(x + 1).__name__, (x + 1).as_subclass(torch.Tensor)), [
        (rand(2).as_subclass(MyTensor),),
        (rand(2),),
    ]


@torch.jit.script
def scripted(x: torch.Tensor, n: int) -> torch.Tensor:
    for _ in range(n):
        x = x * 2
    return x


@program
def script_function():
    return lambda x: scripted(x + 1, 3) - 1, [(rand(2),)] * 2


@program
def func_vjp_and_jvp():
    def f(x):
        fn = lambda t: (t.sin() * t).sum()
        out, pull = torch.func.vjp(fn, x)
        (g,) = pull(torch.ones_like(out))
        o2, jv = torch.func.jvp(fn, (x,), (torch.ones_like(x),))
        return out, g, o2, jv

    return f, [(rand(3),), (rand(3, seed=1),)]


@program
def func_jacobians():
    def f(x):
        fn = lambda t: t.sin() * t.sum()
        return torch.func.jacrev(fn)(x), torch.func.jacfwd(fn)(x), torch.func.hessian(lambda t: (t**3).sum())(x)

    return f, [(rand(3),), (rand(3, seed=1),)]


@program
def autograd_functional():
    def f(x):
        return torch.autograd.functional.jacobian(lambda t: t**2, x), torch.autograd.functional.hvp(
            lambda t: (t**3).sum(), x, torch.ones_like(x)
        )

    return f, [(rand(3),)] * 2


@program
def requires_grad_inside():
    def f(x):
        y = x.detach().clone().requires_grad_()
        z = (y * 3).sum()
        z.backward()
        return y.grad

    return f, [(rand(3),), (rand(3, seed=1),)]


@program
def requires_grad_written():
    def f(x):
        y = x * 2
        y.requires_grad = True
        with torch.enable_grad():
            (g,) = torch.autograd.grad((y**2).sum(), y)
        return g, y.requires_grad

    return f, [(rand(3),), (rand(3, seed=1),)]


@program
def gradient_penalty():
    net = mlp(3, 4, 1)

    def f(x):
        x = x.requires_grad_(True)
        out = net(x)
        (g,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        return ((g.norm(dim=1) - 1) ** 2).mean().detach(), g.detach()

    return f, [(rand(2, 3),), (rand(2, 3, seed=1),)]


@program
def generator_protocol():
    def gen(x):
        log = []
        total = x
        try:
            while True:
                got = yield total
                if got is None:
                    continue
                total = total + got
        except ValueError as e:
            yield ("caught", str(e))
        finally:
            log.append("end")

    def f(x):
        g = gen(x)
        a = next(g)
        b = g.send(2)
        c = g.throw(ValueError("v"))
        g.close()
        return a, b, c, list(g)

    return f, [(rand(2),)] * 2


@program
def generator_returned():
    def f(x, n):
        return (x * i for i in range(n))

    return lambda x: [t + 1 for t in f(x, 3)], [(rand(2),)] * 2


@program
def generator_with_break_inside():
    def gen(x):
        for i in range(3):
            y = x * i
            if y.sum() > 0:
                yield y
            else:
                yield -y

    return lambda x: list(gen(x)), [(rand(2),), (rand(2, seed=1),)]


@program
def yield_from_and_return():
    def inner(x):
        yield x
        return x + 10

    def outer(x):
        r = yield from inner(x)
        yield r

    return lambda x: list(outer(x)), [(rand(2),)] * 2


@program
def sizes_from_constant_tensors():
    def f(x):
        pad = torch.tensor([1, 2])
        size = (torch.tensor(x.shape) * 2).tolist()
        y = F.pad(x, pad.tolist())
        z = F.interpolate(x[None, None], size=size)
        return y, z, x.repeat(int(torch.arange(3).sum()), 1)

    return f, [(rand(2, 3),), (rand(2, 3, seed=1),)]


@program
def tensor_from_numbers_computed():
    def f(x):
        t = torch.tensor([x.shape[0] / 2, math.sqrt(x.shape[1])])
        u = torch.tensor([[1, 2], [3, x.dim()]], dtype=torch.float64)
        return x.sum() * t, u.sum().item(), torch.as_tensor(3.5) + x

    return f, [(rand(2, 3),)] * 2


@program
def masks_from_constants():
    def f(x):
        mask = torch.ones(3, 3).tril().bool()
        if mask.all():
            x = x * 100
        if mask.any() and bool(mask[0, 0]):
            x = x + 1
        rows = mask.nonzero()
        return x, rows, torch.where(mask)[0].tolist()

    return f, [(rand(3),)] * 2


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


GLOBAL = {"calls": 0, "last": None}
COUNTER = 0


@program
def globals_written():
    def f(x):
        global COUNTER
        COUNTER += 1
        GLOBAL["calls"] += 1
        GLOBAL["last"] = x * COUNTER
        return GLOBAL["last"], COUNTER

    global COUNTER
    COUNTER = 0
    GLOBAL.update(calls=0, last=None)
    return f, [(rand(2),)] * 4


@program
def nonlocal_counter():
    def make():
        n, seen = 0, []

        def f(x):
            nonlocal n
            n += 1
            seen.append(n)
            return x * n, list(seen)

        return f

    return make(), [(rand(2),)] * 4


@program
def default_argument_that_grows():
    def f(x, acc=[]):
        acc.append(x)
        return sum(acc), len(acc)

    return f, [(rand(2),)] * 3


@program
def class_attribute_counter():
    class C:
        count = 0
        names = {}

        def __init__(self, v):
            type(self).count += 1
            self.v = v
            C.names[self.count] = v

    return lambda x: (C(x).v + C.count, C.count, sorted(C.names)), [(rand(2),)] * 3


@program
def property_that_counts():
    class P:
        def __init__(self):
            self.reads = 0

        @property
        def v(self):
            self.reads += 1
            return self.reads

    p = P()
    return lambda x: (x * p.v + p.v, p.reads), [(rand(2),)] * 3


@program
def try_finally_return():
    def f(x, n):
        log = []
        for i in range(4):
            try:
                if i == n:
                    return x * i, log
                if i == 2:
                    continue
                log.append(i)
            finally:
                log.append(f"f{i}")
        return x, log

    return f, [(rand(2), n) for n in (0, 1, 3, 9)]


@program
def exceptions_from_torch():
    def f(x, y):
        try:
            return x @ y
        except RuntimeError as e:
            return "shapes" in str(e), x.sum()

    return f, [(rand(2, 3), rand(3, 2)), (rand(2, 3), rand(4, 2))]


@program
def index_errors():
    def f(x, i):
        try:
            return x[i]
        except IndexError as e:
            return str(e)

    return f, [(rand(3), 0), (rand(3), 5), (rand(3), -1)]


@program
def raising_and_chaining():
    def f(x, kind):
        try:
            try:
                {}["k"]
            except KeyError as e:
                if kind == 0:
                    raise ValueError("v") from e
                if kind == 1:
                    raise
                raise TypeError("t")
        except (ValueError, TypeError) as e:
            return x, type(e).__name__, type(e.__cause__).__name__, type(e.__context__).__name__

    return f, [(rand(2), k) for k in (0, 1, 2)]


@program
def assertion_with_message():
    def f(x, n):
        assert n < 3, f"n is {n} and x has {x.shape[0]}"
        return x * n

    return f, [(rand(2), 1), (rand(2), 4), (rand(2), 2)]


@program
def assertion_on_values():
    def f(x):
        assert (x < 10).all(), "too big"
        return x + 1

    return f, [(rand(2),), (rand(2) + 100,)]


@program
def match_statements():
    def f(x, cmd):
        match cmd:
            case {"op": "scale", "by": float() | int() as k, **rest}:
                return x * k, rest
            case ["add", *values] if len(values) > 1:
                return x + sum(values)
            case ("neg" | "minus", _):
                return -x
            case str(name):
                return getattr(x, name)()
            case None:
                return x
            case _:
                return "?"

    return f, [(rand(2), c) for c in ({"op": "scale", "by": 2, "z": 1}, ["add", 1, 2], ("neg", 0), "exp", None, 3.5)]


@program
def string_building():
    def f(x, d):
        s = ", ".join(f"{k}={v:>{5}.2f}" if isinstance(v, float) else f"{k}={v!r}" for k, v in sorted(d.items()))
        t = "%s|%-4d|%05.1f" % ("a", 3, 2.25)
        return x, s, t, "{:^7}".format(str(tuple(x.shape))), s.split("=")[0].upper().center(5, "*")

    return f, [(rand(2), {"b": 1, "a": 2.5}), (rand(2), {"c": "x"})]


@program
def sets_and_frozensets():
    def f(x, names):
        a, b = set(names), frozenset({"w", "b"})
        return x * len(a & b), sorted(a | b), sorted(a ^ b), a <= b, a.isdisjoint(b), sorted(a - b)

    return f, [(rand(2), ["w"]), (rand(2), ["q", "b"])]


@program
def defaultdict_counter_deque():
    def f(x):
        d = collections.defaultdict(list)
        for i in range(4):
            d[i % 2].append(x * i)
        q = collections.deque(maxlen=2)
        for i in range(4):
            q.append(i)
        q.rotate(1)
        c = collections.Counter("hello")
        return {k: sum(v) for k, v in d.items()}, list(q), c.most_common(1), collections.OrderedDict(a=1, b=x)

    return f, [(rand(2),)] * 2


@program
def sorting_by_tensors_values():
    return lambda xs: sorted(xs, key=lambda t: t.sum().item()), [([rand(2, seed=n) for n in range(3)],)] * 2


@program
def functools_zoo():
    @functools.singledispatch
    def show(v):
        return "other"

    @show.register
    def _(v: int):
        return "int"

    @functools.lru_cache(maxsize=2)
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    def compose(*fns):
        return functools.reduce(lambda f, g: lambda t: g(f(t)), fns)

    return lambda x: (compose(torch.sin, torch.cos, lambda t: t * fib(6))(x), show(3), show("s")), [(rand(2),)] * 2


@program
def operators_on_tensors():
    def f(x, y):
        a = operator.matmul(x, y.T)
        a += 1
        b = a // 2 % 3
        c = ~(a > 0) | (b < 1) ^ (a == b)
        d = (-x) ** 2 - abs(y) / 3
        e = operator.itemgetter(0, 1)(d)
        return a, b, c, d, e, divmod(7, 2), x.__add__(1), 2 ** x[0], 1 - x

    return f, [(rand(2, 3), rand(2, 3, seed=1))] * 2


@program
def scalar_tensors_as_numbers():
    def f(x, n):
        k = n.item()
        y = x[: int(n)] if n > 1 else x
        return y * k, range(int(n)), [0] * int(n), float(n) / 2

    return f, [(rand(4), torch.tensor(2)), (rand(4), torch.tensor(3)), (rand(4), torch.tensor(0))]


@program
def numpy_in_and_out():
    def f(x):
        a = x.numpy()
        b = np.sin(a) + 1
        c = torch.from_numpy(b)
        return c * x, a.shape, float(b.sum()), np.array([1.0, 2.0]) @ np.eye(2)

    return f, [(rand(2),), (rand(2, seed=1),)]


@program
def out_arguments():
    def f(x, buf):
        torch.add(x, 1, out=buf)
        y = torch.empty_like(x)
        torch.mul(x, 2, out=y)
        return buf, y

    return f, [(rand(2), torch.zeros(2)), (rand(2, seed=1), torch.zeros(2))]


@program
def advanced_indexing():
    def f(x, i, m):
        y = x.clone()
        y[i, :2] = 0
        y[..., -1] += 5
        y[m] = -1
        return (
            y,
            x[:, None, i],
            x[m].shape,
            x[i][:, [0, 2]],
            y.index_select(0, i),
            x.gather(0, i[None, :].expand(1, 3)[:, :3] * 0),
        )

    return f, [(rand(3, 4), torch.tensor([0, 2, 1]), torch.tensor([True, False, True]))] * 2


@program
def dtype_and_device_logic():
    def f(x):
        if x.dtype == torch.float32 and x.device.type == "cpu" and not x.is_cuda:
            x = x.to(torch.float64)
        info = torch.finfo(x.dtype)
        return (
            x.clamp(min=info.min / 2),
            x.element_size(),
            torch.promote_types(x.dtype, torch.int8),
            x.type(torch.int32),
            str(x.dtype),
        )

    return f, [(rand(2),), (rand(2).double(),), (rand(2).half(),)]


@program
def with_device_and_default_dtype():
    def f(x):
        with torch.device("cpu"):
            a = torch.zeros(2)
        return a.device, x + a, torch.get_default_dtype()

    return f, [(rand(2),)] * 2


@program
def seeds_and_generators():
    def f(x):
        torch.manual_seed(5)
        a = torch.rand(2)
        g = torch.Generator().manual_seed(3)
        b = torch.randn(2, generator=g)
        return a, b, torch.randperm(4), F.dropout(x, 0.5)

    return f, [(rand(6),)] * 2


@program
def rng_streams():
    def f(x, train):
        y = F.dropout(x, 0.5, training=train)
        z = torch.rand_like(y)
        if y.sum() > 0:
            z = z + torch.randn(2)
        return y, z, torch.rand(1)

    return f, [(rand(2), True), (rand(2), False), (rand(2) + 5, True)]


@program
def weak_references():
    class Node:
        def __init__(self, v, parent=None):
            self.v = v
            self.parent = weakref.ref(parent) if parent is not None else None

    def f(x):
        root = Node(x)
        child = Node(x * 2, root)
        return child.parent().v + child.v

    return f, [(rand(2),)] * 2


@program
def threads_inside():
    def f(x):
        out = []
        t = threading.Thread(target=lambda: out.append(x * 2))
        t.start()
        t.join()
        return out[0] + 1

    return f, [(rand(2),)] * 2


@program
def context_managers_that_change_things():
    state = {"depth": 0}

    class Deeper:
        def __enter__(self):
            state["depth"] += 1
            return state["depth"]

        def __exit__(self, kind, value, tb):
            state["depth"] -= 1
            return kind is ZeroDivisionError

    def f(x, n):
        with Deeper() as a, Deeper() as b:
            x = x * a * b
            x = x / (1 / n) if n else x / (1 // n)
        return x, state["depth"]

    return f, [(rand(2), 2), (rand(2), 0), (rand(2), 3)]


@program
def suppress_and_redirect():
    def f(x):
        with contextlib.suppress(KeyError):
            x = x + {}["a"]
        buf = io.StringIO()
        with contextlib.redirect_stdout(buf):
            print("hidden")
        return x, buf.getvalue()

    return f, [(rand(2),)] * 2


@program
def grad_mode_in_all_ways():
    w = rand(2, seed=3, grad=True)

    @torch.no_grad()
    def quiet(x):
        return w * x

    def f(x):
        a = quiet(x)
        with torch.no_grad():
            b = w * 2
            with torch.enable_grad():
                c = w * 3
        with torch.set_grad_enabled(False):
            d = w + 1
        return [t.requires_grad for t in (a, b, c, d, w * x)], torch.is_grad_enabled()

    return f, [(rand(2),)] * 2


@program
def module_train_and_eval_inside():
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.BatchNorm1d(3))

    def f(x):
        net.eval()
        a = net(x)
        net.train()
        b = net(x)
        return a, b, net.training, net[2].num_batches_tracked.clone()

    return f, [(rand(4, 3),)] * 3


@program
def module_surgery():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(2, 2)
            self.b = nn.Linear(2, 2)
            self.order = ["a", "b"]

        def forward(self, x):
            for n in self.order:
                x = self.get_submodule(n)(x)
            self.order = self.order[::-1]
            return x, self.order

    return Net(), [(rand(2, 2),)] * 3


@program
def named_everything():
    net = mlp(3, 4, 2)

    def f(x):
        norms = {n: p.norm() for n, p in net.named_parameters() if p.requires_grad and p.dim() > 1}
        n = sum(p.numel() for p in net.parameters())
        kinds = [type(m).__name__ for m in net.modules()]
        return norms, n, kinds, list(net.state_dict()), net(x), dict(net.named_children()).keys() == {"0", "1", "2"}

    return f, [(rand(2, 3),)] * 2


@program
def clip_grad_value_and_norm():
    net = mlp(3, 2)

    def f(x):
        net(x).sum().backward()
        total = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        torch.nn.utils.clip_grad_value_(net.parameters(), 0.01)
        g = [p.grad.clone() for p in net.parameters()]
        net.zero_grad()
        return total, g, torch.nn.utils.parameters_to_vector(net.parameters()).shape

    return f, [(rand(2, 3),), (rand(2, 3, seed=1),)]


@program
def pruning_and_masks():
    lin = nn.Linear(3, 2)
    mask = (rand(2, 3) > 0).float()

    def f(x):
        with torch.no_grad():
            lin.weight.mul_(mask)
            lin.bias.data.fill_(1.0)
        return lin(x), lin.weight.detach().clone()

    return f, [(rand(2, 3),)] * 2


@program
def in_place_relu_and_residuals():
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True))

    def f(x):
        y = net(x)
        y += x
        y[:, 0].zero_()
        return y, x

    return f, [(rand(2, 3),), (rand(2, 3, seed=1),)]


@program
def embedding_bag_and_padding():
    emb = nn.EmbeddingBag(6, 3, mode="mean")
    e2 = nn.Embedding(6, 3, padding_idx=0, max_norm=None)
    return lambda i, o: (emb(i, o), e2(i).sum(0)), [(torch.tensor([1, 2, 0, 4]), torch.tensor([0, 2]))] * 2


@program
def losses_zoo():
    def f(x, t):
        return (
            F.cross_entropy(x, t),
            F.nll_loss(x.log_softmax(-1), t),
            F.binary_cross_entropy_with_logits(x, x.sigmoid()),
            F.smooth_l1_loss(x, x * 2),
            F.kl_div(x.log_softmax(-1), x.softmax(-1), reduction="batchmean"),
            F.cosine_embedding_loss(x, x + 1, torch.ones(len(x))),
            F.triplet_margin_loss(x, x + 1, x - 1),
            nn.CrossEntropyLoss(label_smoothing=0.1)(x, t),
            F.huber_loss(x, x * 3),
            F.gaussian_nll_loss(x, x * 2, x.exp()),
        )

    return f, [(rand(3, 4), torch.tensor([0, 3, 1]))] * 2


@program
def ctc_and_adaptive():
    def f(x):
        lp = x.log_softmax(-1)
        return F.ctc_loss(lp, torch.tensor([[1, 2]]), torch.tensor([4]), torch.tensor([2])), F.adaptive_avg_pool1d(
            x.permute(1, 2, 0), 2
        )

    return f, [(rand(4, 1, 3),)] * 2


@program
def unusual_arguments():
    def f(x, /, y, *rest, k=1, **named):
        return x * y + sum(rest) + k, sorted(named), f.__name__

    def call(x):
        args, kw = [x, 2], {"k": 3, "z": 4}
        return f(*args, 5, 6, **kw), f(x, y=7)

    return call, [(rand(2),)] * 2


@program
def wrong_arguments():
    def g(a, b=1, *, c):
        return a

    def f(x, n):
        try:
            if n == 0:
                return g(x)
            if n == 1:
                return g(x, 1, 2, c=3)
            if n == 2:
                return g(x, c=1, d=2)
            return g(c=1)
        except TypeError as e:
            return str(e).replace("wrong_arguments.<locals>.", "")

    return f, [(rand(2), n) for n in range(4)]


@program
def warnings_caught():
    def f(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("hidden")
            x = x * 2
        return x

    return f, [(rand(2),)] * 2


@program
def identity_questions():
    def f(x, y, d):
        a, b = [x], [x]
        return x is y, a is b, a == a, d["x"] is x, id(x) == id(x), x.view(-1) is x, a[0] is b[0], x.T.T is x

    t = rand(2)
    return f, [(t, t, {"x": t}), (t, rand(2), {"x": t}), (t, rand(2), {"x": rand(2)})]


@program
def large_constant_tables():
    table = {f"k{i}": i for i in range(200)}

    def f(x, key):
        inverse = {v: k for k, v in table.items()}
        return x * table[key], inverse[5], max(table, key=table.get), len(table)

    return f, [(rand(2), "k3"), (rand(2), "k4")]


@program
def closures_late_binding():
    def f(x):
        fns = [lambda t: t * i for i in range(3)]
        bound = [lambda t, i=i: t * i for i in range(3)]
        n = 5
        late = lambda t: t * n
        a = late(x)
        n = 7
        return [g(x) for g in fns], [g(x) for g in bound], a, late(x)

    return f, [(rand(2),)] * 2


@program
def del_and_rebind():
    def f(x):
        y = x * 2
        d = {"a": y, "b": 1}
        del y, d["a"]
        try:
            y
        except UnboundLocalError as e:
            d["c"] = "unbound"
        return d

    return f, [(rand(2),)] * 2


@program
def walrus_and_ternaries():
    def f(xs):
        if (n := len(xs)) > 1 and (last := xs[-1]).dim() == 1:
            return [y for x in xs if (y := x * n) is not None], last
        return n

    return f, [([rand(2), rand(2, seed=1)],), ([],)]


@program
def star_unpacking():
    def f(xs):
        first, *mid, last = xs
        (a, b), c = (first, last), [*mid, *xs]
        return a - b, len(c), [*range(2), *"ab"], {**{"a": 1}, "b": first}

    return f, [([rand(2), rand(2, seed=1), rand(2, seed=2)],)] * 2


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


@program
def scheduled_temperature():
    class Sched:
        def __init__(self):
            self.t = 0

        def __call__(self):
            self.t += 1
            return max(0.1, 1.0 * 0.5**self.t)

    s = Sched()
    return lambda x: (x / s()).softmax(-1), [(rand(3),)] * 6


@program
def time_is_measured():
    def f(x):
        begin = time.perf_counter()
        y = x.sin()
        took = time.perf_counter() - begin
        return y, took >= 0, isinstance(took, float)

    return f, [(rand(2),)] * 4


@program
def module_attributes_and_globals():
    here = sys.modules[__name__]

    def reads():
        return COUNTER

    def f(x):
        global COUNTER
        here.COUNTER = 5
        a = reads() + COUNTER
        COUNTER = 7
        return x * a, here.COUNTER, reads()

    return f, [(rand(2),)] * 2


class Base:
    level = 1


class Child(Base):
    pass


@program
def class_attributes_through_subclasses():
    def f(x):
        Base.level += 1
        a = Child().level, Child.level, Base().level
        Child.level = 10
        b = Child().level, Base.level
        del_later = Child()
        del_later.level = 3
        return x * a[0], a, b, del_later.level

    Base.level = 1
    if "level" in Child.__dict__:
        del Child.level
    return f, [(rand(2),)] * 3
