"""What an entry relies on has changed: the next process compiles anew, and is right. Bugs of others by number."""

from __future__ import annotations

import os

import pytest
import torch

from .processes import run, same, twice

HEAD = "import os, sys, types, torch, torchglass as tg\nF = torch.nn.functional\n"

CHANGES = {
    "the function": ("return x * 2", "return x * 3"),
    "what it calls": ("return y + 1", "return y + 2"),
    "a constant of the module": ("SCALE = 4.0", "SCALE = 5.0"),
    "a default": ("shift=1.0", "shift=2.0"),
    "a method of a class": ("return self.k * x", "return self.k - x"),
    "a class attribute": ("bias = 0.25", "bias = 0.75"),
    "an attribute of an object": ("Scaled(3.0)", "Scaled(2.0)"),
    "what a checkpoint recomputes (pt#194658)": ("return x.exp()", "return x.cos()"),
    "the body of an autograd function (pt#194658)": ("return g * 10", "return g * 20"),
    "the answer of a cached function": ("return 'one'", "return 'two'"),
    "a closure": ("make(7.0)", "make(8.0)"),
    "a lambda in a table": ("lambda x: x + 30", "lambda x: x + 40"),
    "a size": ("torch.ones(3)", "torch.ones(4)"),
    "a dtype": ("dtype=torch.float32", "dtype=torch.float64"),
}

PROGRAM = (
    HEAD
    + """
import functools
from torch.utils.checkpoint import checkpoint
SCALE = 4.0
def helper(y):
    return y + 1
def default(x, shift=1.0):
    return x - shift
class Scaled:
    bias = 0.25
    def __init__(self, k):
        self.k = k
    def __call__(self, x):
        return self.k * x
scaled = Scaled(3.0)
def recomputed(x):
    return x.exp()
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, g):
        return g * 10
@functools.lru_cache
def which():
    return 'one'
def make(k):
    return lambda x: x * k
inner = make(7.0)
TABLE = {"a": lambda x: x + 30}
def doubled(x):
    return x * 2
def f(x):
    y = helper(doubled(x)) * SCALE + default(x) + scaled(x) + scaled.bias
    y = y + checkpoint(recomputed, x, use_reentrant=False) + Own.apply(x) + inner(x) + TABLE["a"](x)
    return y * (1 if which() == 'one' else -1)
def main():
    x = torch.ones(3).to(dtype=torch.float32).requires_grad_()
    y = tg.compile(f)(x)
    y.sum().backward()
    return [y, x.grad]
"""
)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept") / "cache"
    twice(PROGRAM, folder)
    return folder


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_program_is_compiled_anew(kept, name: str) -> None:
    before, after = CHANGES[name]
    assert PROGRAM.count(before) == 1
    changed = PROGRAM.replace(before, after)
    found = run(changed, kept)
    plain = run(changed.replace("tg.compile(f)", "f"), None)
    assert found.compiled and not found.found, found.said
    for ours, theirs in zip(found.result, plain.result, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)


def test_the_same_program_is_still_found(kept) -> None:
    assert run(PROGRAM, kept).found


def test_a_source_file_with_the_same_time_stamp(tmp_path) -> None:
    """Code is compared, not the file's time."""
    module = tmp_path / "lib_of_mine.py"
    text = HEAD + "sys.path.insert(0, {!r})\nimport lib_of_mine\ndef main():\n"
    text += "    return tg.compile(lib_of_mine.f)(torch.ones(3))\n"
    results = []
    for number in (2, 3):
        module.write_text(f"def f(x):\n    return x * {number}\n")
        os.utime(module, (1e9, 1e9))
        results.append(run(text.format(str(tmp_path)), tmp_path / "cache", PYTHONDONTWRITEBYTECODE="1").result)
        for path in tmp_path.glob("__pycache__/*"):
            path.unlink()
    assert [float(result[0]) for result in results] == [2.0, 3.0]


CUSTOM = (
    HEAD
    + """
@torch.library.custom_op("warmtests::{name}", mutates_args=())
def op(x: torch.Tensor, k: float = {default}) -> torch.Tensor:
    return x * k
@op.register_fake
def _(x, k={default}):
    return {fake}
def f(x):
    return op(x) + 1
def main():
    return tg.compile(f)(torch.ones(3))
"""
)


def test_the_schema_of_a_custom_operator(tmp_path) -> None:
    """pt#187319: not in the key, and silently wrong."""
    text = CUSTOM.format(name="scaled", default=2.0, fake="torch.empty_like(x)")
    twice(text, tmp_path / "cache")
    changed = run(CUSTOM.format(name="scaled", default=5.0, fake="torch.empty_like(x)"), tmp_path / "cache")
    assert changed.compiled and not changed.found
    assert changed.result.tolist() == [6.0] * 3


def test_the_fake_implementation_of_a_custom_operator(tmp_path) -> None:
    text = CUSTOM.format(name="faked", default=2.0, fake="torch.empty_like(x)")
    twice(text, tmp_path / "cache")
    changed = run(CUSTOM.format(name="faked", default=2.0, fake="x.new_empty(x.shape)"), tmp_path / "cache")
    assert changed.compiled and not changed.found


SIMPLE = (
    HEAD
    + """
def f(x, w):
    return F.relu(x @ w) * 2
def main():
    {setup}
    return tg.compile(f{options})(torch.ones(4, 8), torch.ones(8, 8))
"""
)
PLAIN = SIMPLE.format(setup="pass", options="")

STATES = {
    "thread count (pt#184444)": "torch.get_num_threads = lambda: 7",  # a forked child must not start threads
    "default dtype": "torch.set_default_dtype(torch.float64)",
    "deterministic algorithms": "torch.use_deterministic_algorithms(True)",
    "grad mode": "torch.set_grad_enabled(False)",
    "oneDNN": "torch.backends.mkldnn.set_flags(False)",
}


@pytest.mark.parametrize("name", STATES)
def test_the_state_around_a_call(tmp_path, name: str) -> None:
    twice(PLAIN, tmp_path / "cache")
    assert not run(SIMPLE.format(setup=STATES[name], options=""), tmp_path / "cache").found


@pytest.mark.parametrize(
    "options", [", mode='max-autotune'", ", backend='aot_eager'", ", dynamic=True", ", options={'threads': 1}"]
)
def test_options(tmp_path, options: str) -> None:
    twice(PLAIN, tmp_path / "cache")
    assert not run(SIMPLE.format(setup="pass", options=options), tmp_path / "cache").found


@pytest.mark.parametrize("other", ["min=2, max=6", "min=3, max=10"])
def test_what_is_declared_of_sizes(tmp_path, other: str) -> None:
    """pt#174747: overridden hints of sizes, which decide what is compiled, are not in the key."""
    text = (
        HEAD
        + """
def f(x):
    return x.softmax(0) * x.shape[0]
def main():
    x = torch.ones(4, 8)
    tg.mark_dynamic(x, 0, DECLARED)
    return tg.compile(f)(x)
"""
    )
    first, _ = twice(text.replace("DECLARED", "min=2, max=10"), tmp_path / "cache")
    again = run(text.replace("DECLARED", other), tmp_path / "cache")
    assert again.compiled and not again.found and same(first.result, again.result)


def test_the_environment_that_a_program_reads(tmp_path) -> None:
    """vllm#53366, #14953: variables that change the model's code and are not in the key. Others do not count."""
    text = (
        HEAD
        + """
SWITCH = os.environ.get("WARM_SWITCH", "off")
def f(x):
    x = x + (1 if SWITCH == "on" else 2)
    return x * (10 if os.environ.get("WARM_LATE") == "yes" else 1)
def main():
    return tg.compile(f)(torch.zeros(3))
"""
    )
    twice(text, tmp_path / "cache")
    assert run(text, tmp_path / "cache", SOMETHING_ELSE="1").found
    on = run(text, tmp_path / "cache", WARM_SWITCH="on")
    late = run(text, tmp_path / "cache", WARM_LATE="yes")
    assert on.compiled and on.result.tolist() == [1.0] * 3
    assert late.compiled and late.result.tolist() == [20.0] * 3


def test_another_version_of_our_package(tmp_path) -> None:
    def other() -> None:
        from torchglass.cache import key

        key._ours = lambda: "another version"

    twice(PLAIN, tmp_path / "cache")
    assert not run(PLAIN, tmp_path / "cache", before=other).found


def test_another_processor(tmp_path) -> None:
    def other() -> None:
        from torchglass.cache import key

        key._isa = lambda: frozenset({"another"})

    twice(PLAIN, tmp_path / "cache")
    assert not run(PLAIN, tmp_path / "cache", before=other).found


def test_frozen_constants_are_there_on_a_hit(tmp_path) -> None:
    """pt#143144, #117888: packed weights are others in each process."""
    text = (
        HEAD
        + """
nn = torch.nn
net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 5))
torch.manual_seed(SEED)
for p in net.parameters():
    torch.nn.init.normal_(p)
net.eval()
def main():
    with torch.no_grad():
        x = torch.ones(2, 3, 8, 8)
        return [tg.compile(net, options={"freezing": True})(x), net(x)]
"""
    )
    twice(text.replace("SEED", "1"), tmp_path / "cache")
    other = run(text.replace("SEED", "2"), tmp_path / "cache")
    assert other.found and torch.allclose(*other.result, atol=1e-3)


def test_ranks_share_entries(tmp_path) -> None:
    """pt#175944, #170621, #189330: nothing of a rank is in the key, or in what is kept."""
    rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "1234"}
    assert run(PLAIN, tmp_path / "cache", **rank).compiled
    assert run(PLAIN, tmp_path / "cache", **{**rank, "RANK": "1", "LOCAL_RANK": "1", "MASTER_PORT": "4321"}).found


NOT_KEPT = {
    "the backend ": ("tg.compile(f, backend=lambda gm, inputs: gm.forward)", "x + 1"),
    "`G['v']`, was called or read, at /nowhere/warm_program.py:": ("tg.compile(f)", "x * v.get()"),
}


@pytest.mark.parametrize("why", NOT_KEPT)
def test_what_is_not_kept_says_why(tmp_path, why: str) -> None:
    """In the log, to ``tg.explain``, and in the README of its folder: the guard or value that was to blame."""
    compiled, value = NOT_KEPT[why]
    text = HEAD + f"import contextvars\nv = contextvars.ContextVar('v', default=3)\ndef f(x):\n    return {value}\n"
    text += f"""
def main():
    from torchglass.inspector import reports
    compiled = {compiled}
    compiled(torch.ones(2))
    told = tg.explain(compiled)
    reports.flush()
    return str(told), told.to_dict()["entries"][0]["not_kept"], (told.record.folder / "README.md").read_text()
"""
    for _ in range(2):
        outcome = run(text, tmp_path / "cache")
        assert outcome.compiled
        assert any("is not kept for later processes: " in line and why in line for line in outcome.said)
        said, row, readme = outcome.result
        assert "not kept for later processes: " in said and why in row and why in readme


def test_modules_under_other_names(tmp_path) -> None:
    """A program in ``__main__`` and in a module are two."""
    assert run(PLAIN, tmp_path / "cache", module="warm_one").compiled
    assert not run(PLAIN, tmp_path / "cache", module="warm_two").found


def test_reset_finds_it_again(tmp_path) -> None:
    text = (
        HEAD
        + """
def f(x):
    return x.sin() + 1
def main():
    compiled = tg.compile(f)
    a = compiled(torch.ones(3))
    tg.reset()
    return [a, compiled(torch.ones(3))]
"""
    )
    outcome = run(text, tmp_path / "cache")
    assert len(outcome.compiled) == len(outcome.found) == 1
    assert torch.equal(*outcome.result)


LIBRARY = {
    "an enumeration's value": ("K = {}\nclass M(enum.IntFlag):\n    A = K\n", "x * int(M.A)"),
    "an enumeration that is a string": ("K = {}\nclass M(enum.StrEnum):\n    A = f'v{{K}}'\n", "x + (M.A == 'v2')"),
    "a member that is another's alias": ("class M(enum.Enum):\n    A = {}\n    B = 3\n", "x + (M.A is M.B)"),
    "defaults of a named tuple": ("N = collections.namedtuple('N', 'a b', defaults=[{}])\n", "x * N(1).b"),
    "fields of a named tuple": ("N = collections.namedtuple('N', 'a b' if {} == 2 else 'b a')\n", "x * N(2, 3).a"),
    "a signature": ("def h(k={}):\n    pass\n", "x * inspect.signature(h).parameters['k'].default"),
    "annotations": ("class K:\n    a: (int if {} == 2 else float)\n", "x + (typing.get_type_hints(K)['a'] is int)"),
    "a union": ("T = typing.Union[int, str] if {} == 2 else typing.Union[float, str]\n", "x + isinstance(3, T)"),
    "what allow_in_graph leaves whole": ("K = {}\n@tg.allow_in_graph\ndef h(x):\n    return x * K\n", "h(x)"),
}


@pytest.mark.parametrize("name", LIBRARY)
def test_what_a_module_without_a_file_holds(tmp_path, name: str) -> None:
    """Whatever a value was computed of: a setting, the environment."""
    text, expression = LIBRARY[name]
    program = HEAD + "import collections, enum, inspect, typing\n" + text
    program += f"def f(x):\n    return {expression}\ndef main():\n    return tg.compile(f)(torch.ones(3))\n"
    before = run(program.format(2), tmp_path / "cache")
    again = run(program.format(2), tmp_path / "cache")
    after = run(program.format(3), tmp_path / "cache")
    assert same(before.result, again.result)
    assert same(after.result, run(program.format(3).replace("tg.compile(f)", "f"), None).result), after.said
    assert not torch.equal(before.result, after.result)


DERIVATIVES = {
    "of a custom operator": """
@torch.library.custom_op("warmtests::grad", mutates_args=())
def op(x: torch.Tensor) -> torch.Tensor:
    return x * 2
op.register_fake(lambda x: torch.empty_like(x))
op.register_autograd(lambda ctx, g: helper(g))
""",
    "of an operator of a library": """
torch.library.define("warmtests::lib", "(Tensor x) -> Tensor")
torch.library.impl("warmtests::lib", "cpu")(lambda x: x * 2)
torch.library.register_fake("warmtests::lib")(lambda x: torch.empty_like(x))
torch.library.register_autograd("warmtests::lib", lambda ctx, g: helper(g))
op = torch.ops.warmtests.lib
""",
    "of a kernel that is traced": """
LIB = torch.library.Library("warmtests", "FRAGMENT")
LIB.define("composed(Tensor x) -> Tensor")
LIB.impl("composed", lambda x: helper(x), "CompositeImplicitAutograd")
op = torch.ops.warmtests.composed
""",
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_the_derivative(tmp_path, name: str) -> None:
    program = (
        HEAD
        + "K = {}\ndef helper(g):\n    return g * K\n"
        + DERIVATIVES[name]
        + """
def f(x):
    return op(x) + 1
def main():
    x = torch.ones(3, requires_grad=True)
    y = tg.compile(f)(x)
    y.sum().backward()
    return [y, x.grad]
"""
    )
    run(program.format(2), tmp_path / "cache")
    assert same(run(program.format(2), tmp_path / "cache").result[1].tolist(), [2.0] * 3)
    assert same(run(program.format(3), tmp_path / "cache").result[1].tolist(), [3.0] * 3)
