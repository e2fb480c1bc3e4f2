"""Numbers that change from call to call: graph inputs after their second value, guards where their value is read."""

import math
import time

import pytest
import torch
from torch import nn

import torchglass as tg
from torchglass.runtime import reconstruct


@pytest.fixture(autouse=True)
def clean(tmp_path):
    tg.reset()
    with tg.prepare_debug(tmp_path):
        yield


X = torch.linspace(-2, 2, 6)


def entries(compiled):
    return [len(record.entries) for record in tg.explain(compiled).record.walk()]


def check(function, cases, most, backend="eager", x=X):
    compiled = tg.compile(function, backend=backend)
    for case in cases:
        torch.testing.assert_close(compiled(x, case), function(x, case), equal_nan=True)
    assert max(entries(compiled)) <= most, entries(compiled)
    return compiled


def operations(x, n):
    return x * n + n, n - x, x / n, x > n, (x + 1) // n, x % n, torch.add(x, n), x.sub(n)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "glass"])
def test_operands(backend):
    check(operations, [0.5, 0.25, 1.5, 3.0, -1.0, 0.1], most=2, backend=backend)
    check(operations, [2, 3, 5, -1], most=2, backend=backend)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8,
              torch.bool, torch.complex64],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(4,), ()])
def test_promotion(dtype, shape):
    """A number is a weak scalar: results have the dtypes that eager gives them."""
    x = torch.ones(shape, dtype=dtype)
    arithmetic = lambda x, n: (x * n, x + n, n - x.to(torch.float32), x / n)
    check(arithmetic, [0.5, 0.1, 0.3], most=3, x=x)
    check(arithmetic, [2, 3, 5], most=3, x=x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64])
def test_numbers_that_come_first_are_rounded_as_in_eager(dtype):
    x = (torch.linspace(1, 99, 500)).to(dtype)
    compiled = tg.compile(lambda x, n: (n * x, n / x, n - x, n + x), backend="eager")
    for n in (1.8, 2.3, 0.1):
        assert all(map(torch.equal, compiled(x, n), (n * x, n / x, n - x, n + x)))
    assert max(entries(compiled)) == 2


def test_gradients():
    def f(x, n):
        w = x.detach().requires_grad_(False) + n
        return (x * n + torch.sin(x / n) * w).sum()

    compiled = tg.compile(f)
    for n in (0.5, 0.25, 2.0, 4.0):
        a, b = X.clone().requires_grad_(), X.clone().requires_grad_()
        compiled(a, n).backward()
        f(b, n).backward()
        torch.testing.assert_close(a.grad, b.grad)
    assert max(entries(compiled)) == 2


def test_python_arithmetic():
    def schedule(x, step):
        warm = min(1.0, step / 10)
        decay = 0.5 * (1 + math.cos(math.pi * step / 100))
        return x * (warm * decay) - step, -step, abs(step) + 1

    check(schedule, [1, 2, 3, 4, 5], most=2)


def test_item_and_clock():
    def f(x, k):
        total = x.sum().item()
        return x / (total + k)

    compiled = tg.compile(f, backend="eager")
    for n in range(6):
        x = X + n
        torch.testing.assert_close(compiled(x, 1.0), f(x, 1.0))
    assert max(entries(compiled)) <= 2

    def timed(x):
        begin = time.time()
        return x * begin

    compiled = tg.compile(timed, backend="eager")
    for _ in range(5):
        compiled(X)
    assert max(entries(compiled)) <= 2


def test_what_a_break_gives_is_no_constant_of_its_first_entry():
    def f(x):
        total, mean = x.sum().item(), x.mean().item()
        kept = [total, total / 2]
        low, high = (x.min().item(), x.max().item())
        return x * total + mean, kept[1], {"low": low, "high": high}

    compiled = tg.compile(f, backend="eager")
    for n in range(4):
        x = X * n + n
        assert str(compiled(x)) == str(f(x))
    assert set(entries(compiled)) == {1}, entries(compiled)


def test_rounds_of_a_loop_that_breaks_are_one_entry():
    def f(x):
        losses = []
        for _ in range(6):
            loss = (x * x).sum()
            losses.append(loss.item())
            x = x - 0.1 * x * losses[-1]
        return x, losses

    compiled = tg.compile(f, backend="eager")
    for n in range(3):
        assert str(compiled(X / 4 + n / 10)) == str(f(X / 4 + n / 10))
    assert max(entries(compiled)) <= 2, entries(compiled)


@pytest.mark.parametrize("backend", ["eager", "glass"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int64, torch.bool])
def test_numbers_written_to_places(backend, dtype):
    def f(x, n):
        out = torch.zeros(4).to(dtype)
        out[1] = n
        out[2:] = n + 1
        return out, x.masked_fill(x > 0, n), x.clone().masked_fill_(x < 0, n), torch.empty(2).fill_(n)

    most = 9 if dtype is torch.bool else 2  # each value is one entry where no tensor stands for the number
    check(f, [0.5, 1.5, 2.5, -1.25], most=most, backend=backend)
    check(f, [1, 2, 3, -4], most=9, backend=backend)


def of_numbers(x, n):
    whole = torch.full((2, 2), n), torch.full((3,), fill_value=n, dtype=torch.float64), torch.full_like(x, n)
    return *whole, x.new_full((2,), n), torch.tensor(n), torch.as_tensor([n]), torch.tensor([n, n * 2, type(n)(3)])


@pytest.mark.parametrize("backend", ["eager", "glass"])
def test_tensors_made_of_numbers(backend):
    check(of_numbers, [1, 2, 3, -4], most=2, backend=backend)
    check(of_numbers, [0.5, 0.25, -0.0, math.inf, math.nan], most=2, backend=backend)
    steps = lambda x, n: torch.full((x.size(0),), n, device=x.device, dtype=torch.long)
    check(steps, list(range(9, 0, -1)), most=2, backend=backend)
    check(lambda x, n: torch.tensor(n, dtype=torch.bool), [1, 0, 2], most=3, backend=backend)


def test_lists_of_numbers_become_masks():
    mask = lambda x, lengths: torch.arange(6)[None] < torch.tensor(lengths)[:, None]
    check(mask, [[1, 2, 3], [2, 3, 1], [3, 3, 3], [4, 3, 2], [1, 1, 5]], most=4)


def test_a_tensor_of_a_number_whose_value_is_read():
    """It is known: the number is guarded, and the graph does not end."""
    compiled = check(lambda x, n: x.repeat(torch.tensor([n, 1]).tolist()), [1, 2, 3], most=3)
    assert not tg.explain(compiled).breaks()


def test_numbers_of_numpy():
    numpy = pytest.importorskip("numpy")

    def bootstrapped(x, n):
        assert type(n + 1) is type(n)
        return x * (n + 0.99 * (1 - n)), n * x, torch.tensor([n, 0.5]), x * float(n), n > -9

    check(bootstrapped, list(map(numpy.float64, (0.5, 0.25, -1.0, 3.0, 7.5))), most=2)


@pytest.mark.parametrize("backend", ["eager", "glass"])
def test_sums_scaled_by_a_number(backend):
    sums = lambda x, n: (
        x.add(x.sin(), alpha=n),
        torch.sub(x, x.cos(), alpha=-n),
        x.clone().mul_(n).add_(x, alpha=1 - n),
    )
    check(sums, [0.5, 0.25, -1.0, 3.0], most=2, backend=backend)
    check(sums, [2, 3, 5, -1], most=2, backend=backend)
    check(sums, [0.5, 0.25, 2.0], most=3, backend=backend, x=X.to(torch.bfloat16))


@pytest.mark.parametrize("backend", ["eager", "glass"])
def test_products_scaled_and_values_bounded_by_a_number(backend):
    """As optimizers, moving averages and clipped objectives of papers do, with rates that change at each step."""
    written = lambda x, n: (
        x.clone().addcdiv_(x, x.exp(), value=-n),
        torch.addcmul(x, x, x.cos(), value=n),
        x.clone().lerp_(x.sin(), 1 - n),
        x.clamp(1 - n, 1 + n),
        x.clamp(max=n),
        torch.clip(x, 0, n),
        x.clone().clamp_(-n, None),
    )
    check(written, [0.5, 0.25, 1.0, 3.0, math.inf], most=2, backend=backend)
    check(written, [0.5, 0.25, 1.0], most=3, backend=backend, x=X.to(torch.bfloat16))
    check(lambda x, n: (x.clamp(0, n), x.clamp(max=n)), [1, 2, 0.5], most=3, backend=backend, x=X.to(torch.int32))
    x = X.clone().requires_grad_()
    clipped = lambda x, n: torch.autograd.grad((x.clamp(-n, n) + torch.lerp(x, x * 3, n)).sum(), x)
    check(clipped, [0.4, 2.0, 1.2], most=2, backend=backend, x=x)


class Signed(torch.optim.Optimizer):
    """An optimizer as papers publish them."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr, "betas": (0.9, 0.99)})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                average = state.setdefault("average", torch.zeros_like(p))
                p.add_((average * group["betas"][0] + p.grad).sign_(), alpha=-group["lr"])
                average.mul_(group["betas"][1]).add_(p.grad, alpha=1 - group["betas"][1])


def test_an_optimizer_with_a_schedule():
    def train(compile):
        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        optimizer = Signed(model.parameters())
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        step = compile(optimizer.step)
        for _ in range(6):
            optimizer.zero_grad()
            model(torch.ones(3, 4)).sum().backward()
            step()
            schedule.step()
        return step, list(model.parameters())

    step, weights = train(tg.compile)
    for ours, theirs in zip(weights, train(lambda function: function)[1]):
        torch.testing.assert_close(ours, theirs)
    explained = tg.explain(step)
    assert not explained.breaks() and len(explained.entries) <= 3


def test_whether_a_number_is_zero():
    check(lambda x, n: x * n if n else x, [0.5, 0.25, 0.0, math.nan, 2.0], most=3)


def test_advantages_in_a_loop():
    def gae(rewards, values, last):
        result, running = torch.zeros(len(rewards)), 0.0
        for t in reversed(range(len(rewards))):
            after = last if t == len(rewards) - 1 else values[t + 1]
            running = rewards[t] + 0.99 * after - values[t] + 0.9 * running
            result[t] = running
        return result

    compiled = tg.compile(gae, backend="eager")
    for n in range(6):
        args = [0.1 * n, 1.0 - n], [0.3 * n, 0.5 + n], 0.7 * n
        assert compiled(*args).equal(gae(*args))
    assert entries(compiled) == [2]


def test_counters_of_objects():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.step = 0
            self.scale = 1.0

        def forward(self, x):
            self.step += 1
            self.scale *= 0.5
            return x * self.scale + self.step

    eager, net = Net(), Net()
    compiled = tg.compile(net, backend="eager")
    for _ in range(6):
        torch.testing.assert_close(compiled(X), eager(X))
    assert (net.step, net.scale) == (6, 0.5**6)
    assert max(entries(compiled)) <= 3


def test_branches_guard_their_value_and_break_in_the_end():
    def f(x, n):
        if n > 0.5:
            return x * n
        return x + n

    values = [0.1 * k for k in range(10)] + [0.01 * k for k in range(1, 90)]
    compiled = check(f, values, most=12)
    assert not any("entries and runs eagerly" in f.reason for f in tg.explain(compiled).record.fallbacks)


def test_branches_under_fullgraph_stay_guards():
    compiled = tg.compile(lambda x, n: x * n if n > 0.5 else x, backend="eager", fullgraph=True)
    for n in range(20):
        compiled(X, n / 7)


def test_what_is_read_of_a_computed_number_is_the_guard():
    """A counter that is compared, or an index made of it, is no guard on the counter."""
    steps = list(range(40))
    check(lambda x, n: x * 2 if (n + 1) % 4 == 0 else x, steps, most=3)
    check(lambda x, n: x * (n % 2 == 0), steps, most=3)
    check(lambda x, n: x[n % 3], steps, most=4)
    check(lambda x, n: x / n if n != 0 and 10 / n > 2 else x, steps, most=4)
    check(lambda x, n: x * n if n < 3 else x + 0.5 * (1 + math.cos(math.pi * (n - 3) / 10)), steps, most=3)
    check(lambda x, n: x.repeat(n // 10 + 1), steps, most=5)
    check(lambda x, n: x + {0: 1, 1: 5}[n // 2 % 2], [1.0, 3.0, 5.0, 1.0, 3.0], most=3)
    check(lambda x, n: x * n if n > -math.inf else x, [0.1 * n for n in steps], most=2)


def test_computations_that_grow_are_guarded_by_what_they_begin_with():
    def f(x, n):
        for k in range(60):
            n = n * n % 7 + k
        return x * 2 if n > 3 else x

    check(f, [3, 4, 5, 3, 4, 5], most=3)


def test_a_best_value_that_is_kept():
    class Stopping:
        def __init__(self):
            self.best, self.wait, self.stop = float("inf"), 0, False

        def __call__(self, x):
            loss = x.mean().item()
            if loss < self.best - 1e-6:
                self.best, self.wait = loss, 0
            else:
                self.wait += 1
                self.stop = self.wait >= 3
            return x * loss, self.stop

    mine, theirs = Stopping(), Stopping()
    compiled = tg.compile(mine, backend="eager")
    for k in (5, 4, 6, 3, 2, 7, 8, 9, 9, 1, 0, 4, 4):
        assert compiled(X + k)[1] == theirs(X + k)[1]
        assert (mine.best, mine.wait) == (theirs.best, theirs.wait)
    assert max(entries(compiled)) <= 5
    told = [str(r.guard.source) for record in tg.explain(compiled).record.walk() for r in record.recompiles]
    assert any(" < (self.__dict__['best'] - 1e-06)" in text for text in told), told


def test_values_that_are_read_are_guards():
    check(lambda x, n: x[:n], [1, 2, 3, 1, 2], most=3)
    check(lambda x, n: x * n if n is not None else x, [1.0, 2.0, None, 3.0], most=3)
    check(lambda x, n: x * {1: 5, 2: 7}[n], [1, 2, 1, 2], most=2)
    check(lambda x, n: x.repeat(n), [1, 2, 3], most=3)
    check(lambda x, n: torch.full((2,), n) + x[0], [0.5, 1.5, 2.5], most=3)


def test_what_python_raises():
    def divides(x, n):
        return x * (1 / n)

    compiled = tg.compile(divides, backend="eager")
    for n in (1.0, 2.0, 4.0):
        torch.testing.assert_close(compiled(X, n), divides(X, n))
    with pytest.raises(ZeroDivisionError):
        compiled(X, 0.0)
    torch.testing.assert_close(compiled(X, 8.0), divides(X, 8.0))
    huge = tg.compile(lambda x, n: x + n, backend="eager")
    for n in (1, 2, 3):
        huge(X, n)
    with pytest.raises(OverflowError):
        X + 10**30
    with pytest.raises(OverflowError):
        huge(X, 10**30)


def test_kinds_do_not_mix():
    def f(x, n):
        return x.to(torch.int64) * n

    check(f, [1, 2, 3, 0.5, 0.25, True, 4], most=6)


def test_numbers_are_returned_and_stored_as_themselves():
    kept = {"n": 0.0}

    def f(x, n):
        kept["n"] = n
        return x * n, n, [n, n * 2], {"n": n + 1}, f"{type(n).__name__}"

    compiled = tg.compile(f, backend="eager")
    for n in (0.5, 1.5, 2.5, 3.5):
        out = compiled(X, n)
        assert out[1:] == (n, [n, n * 2], {"n": n + 1}, "float")
        assert kept == {"n": n}
    assert entries(compiled) == [2]


def test_inside_checkpoints_and_transforms():
    import torch.utils.checkpoint

    def f(x, n):
        inner = lambda t: torch.sin(t * n)
        return torch.func.vmap(inner)(x) + torch.utils.checkpoint.checkpoint(inner, x, use_reentrant=False)

    check(f, [0.5, 1.5, 2.5], most=3)


def test_unused_computation_that_fails_for_another_value():
    def f(x, n):
        try:
            math.sqrt(n)
        except ValueError:
            return x + 100
        return x + 1, isinstance(n**0.5, complex)

    compiled = tg.compile(f, backend="eager")
    for n in (1.0, 2.0, 3.0, -1.0, 4.0):
        assert str(compiled(torch.ones(1), n)) == str(f(torch.ones(1), n))


def rows(count, width, seed=0):
    return torch.rand(count, width, generator=torch.Generator().manual_seed(seed)).tolist()


def of_lists(x, lists):
    made = torch.tensor(lists)
    made[0] = 1
    return made.sum() * x, torch.as_tensor(lists, dtype=torch.float64), torch.tensor(lists, dtype=torch.int64)


@pytest.mark.parametrize("backend", ["eager", "glass"])
def test_tensors_made_of_lists_of_numbers(backend):
    """Batches of a replay memory, say: lists of lists, truth values, zipped anew for each batch."""
    check(of_lists, [rows(3, 2, seed) for seed in range(5)], most=2, backend=backend)
    check(of_lists, [[True, seed % 2 == 0, seed % 3 == 0] for seed in range(5)], most=3, backend=backend)
    check(of_lists, [[[1, seed], [2, 3]] for seed in range(5)], most=2, backend=backend)
    turned = lambda x, lists: torch.tensor([[a, b + 1, 0.5] for a, b in zip(*lists)])
    check(turned, [rows(2, 3, seed) for seed in range(5)], most=2, backend=backend)


def test_rows_that_are_one_list_at_some_calls():
    shared = [1.0, 2.0]
    check(of_lists, [rows(2, 2), rows(2, 2, 1), [shared, shared], rows(2, 2, 2), [shared, shared]], most=3)


def test_lists_that_are_written_to_before_a_tensor_is_made_of_one():
    def f(x, lists):
        before = torch.tensor(lists[1])
        lists[0][0] += 5.0
        after = torch.tensor(lists[1])
        lists[0][0] -= 5.0
        return before, after

    one = [1.0, 2.0]
    check(f, [rows(2, 2), rows(2, 2, 1), rows(2, 2, 2), [one, one]], most=4)


def test_lists_that_become_no_tensor():
    compiled = tg.compile(lambda lists: torch.tensor(lists, dtype=torch.uint8), backend="eager")
    for value in (1, 2, 3):
        assert compiled([value, 0]).tolist() == [value, 0]
    with pytest.raises(RuntimeError, match="overflow"):
        compiled([300, 0])


def test_lists_put_together_inside_are_there_before_the_graph(monkeypatch):
    """An entry that fails before its graph has run is run by Python, in silence."""

    def give_up(error, function, arguments):
        raise AssertionError("the entry did not run") from error

    monkeypatch.setattr(reconstruct, "plainly", give_up)

    def f(x, n):
        items = [n, n + 1]
        return x + torch.tensor(items), torch.tensor([[n, 1.0], [2.0, items[1]]]), items

    compiled = tg.compile(f, backend="eager", fullgraph=True)
    for n in (3.0, 4.0, 5.0):
        torch.testing.assert_close(compiled(torch.zeros(2), n), f(torch.zeros(2), n))
    assert len(tg.explain(compiled).entries) == 2
