"""Functions called from between the graphs are compiled as functions of their own, and everything else stays plain."""

import gc
import sys
import threading
import warnings
import weakref

import pytest
import torch
from torch import nn

import torchglass as tg
from torchglass import _native
from torchglass.inspector import reports


@pytest.fixture(autouse=True)
def clean(tmp_path):
    tg.reset()
    with tg.prepare_debug(tmp_path):
        yield
    assert not _native.watching()


def called(compiled):
    """The functions that were compiled because compiled code called them, by name without the prefix."""
    record = tg.explain(compiled).record
    return {c.name.removeprefix("called_"): c for c in record.called if c.name != "called_note"}


def graphs(record):
    return sum(len(e.graphs) for f in record.walk() for e in f.entries)


log = []


def note(x):
    """What capture cannot look into."""
    log.append(tuple(x.shape))
    opaque()


@tg.disable
def opaque():
    pass


def leaf(x):
    y = x.sin()
    note(y)
    return y.cos() + 1


def middle(x, scale=2, *, shift=0.0):
    return leaf(x * scale) + shift


def outer(x):
    return middle(x + 1, shift=0.5) * 3


def in_step(function, *calls, **options):
    compiled = tg.compile(function, **{"backend": "eager", **options})
    for arguments in calls:
        log.clear()
        expected = function(*arguments)
        told = list(log)
        log.clear()
        torch.testing.assert_close(compiled(*arguments), expected, rtol=0, atol=0)
        assert log == told
    return compiled


def test_a_break_inside_nested_calls_costs_only_that():
    compiled = in_step(outer, *[(torch.ones(3),)] * 3)
    found = called(compiled)
    assert set(found) == {"middle", "leaf"}
    assert graphs(tg.explain(compiled).record) == 6  # before and after the call, in each of three functions
    assert [len(f.entries) for f in found.values()] == [1, 1]


def test_each_has_its_folder_and_entries(tmp_path):
    with tg.prepare_debug(tmp_path / "glass"):
        compiled = in_step(outer, (torch.ones(3),), (torch.ones(4),))
    folder = tmp_path / "glass" / "outer"
    assert (folder / "called_leaf" / "entry_1" / "transformed.py").exists()
    assert "with compiled_calls:" in (folder / "entry_0" / "transformed.py").read_text()
    assert "called_middle" in (folder / "README.md").read_text()
    assert "called_leaf" in str(tg.explain(compiled))
    assert [c["name"] for c in tg.explain(compiled).to_dict()["called"]] == [
        "called_middle",
        "called_leaf",
        "called_note",
    ]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "glass"])
def test_gradients_pass_through(backend):
    compiled = tg.compile(outer, backend=backend)
    for _ in range(2):
        x, y = (torch.linspace(0, 1, 5).requires_grad_() for _ in range(2))
        outer(x).sum().backward()
        compiled(y).sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
    assert "leaf" in called(compiled)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        note(x)
        return self.linear(x).relu()


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(Layer(), Layer())
        self.head = Layer()

    def forward(self, x):
        try:
            return self.head(self.layers(x))
        finally:
            note(x)


def test_modules_called_from_a_function_that_runs_plainly():
    model = Tower()
    compiled = tg.compile(model, backend="eager")
    for _ in range(3):
        torch.testing.assert_close(compiled(torch.ones(2, 4)), model(torch.ones(2, 4)))
    found = called(compiled)
    assert "Layer_forward" in found and graphs(found["Layer_forward"]) >= 1
    with torch.no_grad():
        model.head.linear.weight.fill_(2)
    torch.testing.assert_close(compiled(torch.ones(2, 4)), model(torch.ones(2, 4)))
    model.head.linear = nn.Linear(4, 4)
    torch.testing.assert_close(compiled(torch.ones(2, 4)), model(torch.ones(2, 4)))
    model.head.register_forward_hook(lambda module, args, result: result * 2)
    torch.testing.assert_close(compiled(torch.ones(2, 4)), model(torch.ones(2, 4)))


def test_disabled_functions_and_what_they_call_stay_plain():
    @tg.disable
    def off(x):
        assert not _native.watching()
        return leaf(x)

    compiled = in_step(lambda x: off(x + 1) + leaf(x), *[(torch.ones(3),)] * 3)
    assert set(called(compiled)) == {"leaf"}

    @torch.compiler.disable
    def off_too(x):
        return leaf(x)

    compiled = in_step(lambda x: off_too(x + 1), *[(torch.ones(3),)] * 2)
    assert not called(compiled)


def test_exceptions_pass_through():
    def thrower(x):
        note(x)
        raise ValueError(f"of {tuple((x + 1).shape)}")

    def f(x):
        return thrower(x * 2)

    compiled = tg.compile(f, backend="eager")
    for _ in range(3):
        with pytest.raises(ValueError, match=r"of \(3,\)"):
            compiled(torch.ones(3))
        assert not _native.watching()


def test_generators_stay_plain_and_what_they_call_does_not():
    def numbers(x):
        for i in range(2):
            yield leaf(x * i)

    def total(x):
        result = x
        for y in iter(list(opaque(numbers(x)))):
            result = result + y
        return result

    @tg.disable
    def opaque(iterator):
        return iterator

    in_step(total, *[(torch.ones(3),)] * 3)


def test_recursion():
    def down(x, n):
        note(x)
        return down(x + 1, n - 1) if n else x

    in_step(lambda x: down(x, 12) * 2, *[(torch.ones(2),)] * 3)


def test_arguments_of_every_kind():
    def all_kinds(a, /, b, c=3.0, *rest, d, e=5.0, **more):
        note(a)
        return (a + b) * c + sum(rest) + d * e + more.get("z", 0.0)

    def f(a, b):
        first = all_kinds(a, b, d=a)
        second = all_kinds(a, b, 1.0, a, b, d=b, e=2.0, z=a)
        return first, second, all_kinds(a, c=a, b=b, d=a)

    compiled = in_step(f, *[(torch.ones(3), torch.full((3,), 2.0))] * 3)
    assert set(called(compiled)) == {"all_kinds"}


def test_closures_that_are_written():
    def f(x):
        total = torch.zeros(3)
        count = 0

        def add(y):
            nonlocal total, count
            note(y)
            total = total + y
            count += 1

        add(x)
        add(x * 2)
        return total * count

    in_step(f, *[(torch.ones(3),)] * 4)


def test_functions_without_tensor_work_are_left_alone():
    def text(x, n):
        note(x)
        return f"{n}" * 2

    def f(x):
        return x * len(text(x, 3))

    compiled = in_step(f, *[(torch.ones(3),)] * 20)
    assert len(called(compiled)) <= 1
    assert sum(len(record.entries) for record in called(compiled).values()) <= 2


@pytest.mark.complains("could not compile")
def test_a_defect_of_ours_runs_the_function_plainly(monkeypatch, caplog):
    from torchglass import entry_pipeline

    real = entry_pipeline.capture_run

    def failing(request, *rest):
        if request.name == "called_leaf":
            raise RuntimeError("a defect")
        return real(request, *rest)

    monkeypatch.setattr(entry_pipeline, "capture_run", failing)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        in_step(outer, *[(torch.ones(3),)] * 3)
    assert [
        r.message for r in caplog.records if "could not compile" in r.message and "leaf" in r.message
    ].__len__() == 1


def test_modes_and_transforms_see_the_operations():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        number = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            Count.number += 1
            return function(*args, **(kwargs or {}))

    def inside(x):
        with Count():
            return leaf(x)

    def f(x):
        return tg.disable(lambda: None) and plainly(x)

    def plainly(x):
        note(x)
        return torch.func.grad(lambda y: leaf(y).sum())(x) + inside(x)

    in_step(f, *[(torch.ones(3),)] * 3)
    assert Count.number > 0


def test_tracing_tools_see_the_user_frames():
    compiled = tg.compile(outer, backend="eager")
    compiled(torch.ones(3))
    seen = set()

    def trace(frame, event, argument):
        seen.add(frame.f_code.co_name)

    sys.settrace(trace)
    try:
        compiled(torch.ones(3))
    finally:
        sys.settrace(None)
    assert {"middle", "leaf"} <= seen


def test_threads():
    compiled = tg.compile(outer)
    wrong = []

    def work(size):
        for _ in range(30):
            x = torch.full((size,), 0.5)
            if not torch.allclose(compiled(x), (torch.sin((x + 1) * 2).cos() + 1 + 0.5) * 3):
                wrong.append(size)

    threads = [threading.Thread(target=work, args=(n,)) for n in (2, 3, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert all(len(record.entries) == 2 for record in called(compiled).values())


def test_nothing_is_kept_alive():
    class Payload:
        pass

    def make(payload):
        def inner(x):
            note(x)
            return x + (payload is not None)

        def f(x):
            return inner(x) * 2

        return f

    alive = []
    for _ in range(20):
        payload = Payload()
        alive.append(weakref.ref(payload))
        in_step(make(payload), *[(torch.ones(2),)] * 2)
    del payload
    reports.flush()  # what waits to be written is kept
    gc.collect()
    assert sum(reference() is not None for reference in alive) == 0


def test_reset_forgets_the_functions_called():
    compiled = in_step(outer, (torch.ones(3),))
    assert called(compiled)
    tg.reset()
    assert not called(compiled)
    torch.testing.assert_close(compiled(torch.ones(3)), outer(torch.ones(3)))
    assert called(compiled)
