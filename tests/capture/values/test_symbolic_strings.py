"""Texts made of numbers that change from call to call: made anew at each call, by one entry."""

from types import SimpleNamespace

import pytest
import torch

import torchglass as tg

from ..compared import same

CALLS = 8


@pytest.fixture(autouse=True)
def clean():
    tg.reset()


def most_entries(compiled):
    return max(len(record.entries) for record in tg.explain(compiled).record.walk())


def inputs():
    return [torch.tensor([n / 4, n]) for n in range(1, CALLS + 1)]


def f_string(total, n):
    return f"loss {n:.3f} {n!r:>12} {n}"


def with_width(total, n):
    return f"{n:{int(n) % 3 + 6}.2f}|"


def percent(total, n):
    return "%.3f of %s" % (n, "all") + " and %g" % n  # noqa: UP031


def format_method(total, n):
    return "{:.2f} {b:>8} {c}".format(n, b=round(n, 1), c=None)  # noqa: UP032


def pieces(total, n):
    return ", ".join(f"{v:.1f}" for v in (n, n + 1)) + " " + str(n) + repr(n) + format(n, ".2e")


def methods(total, n):
    return f"  {n}".strip().ljust(10, "*").replace(".", ",").upper().center(20)


def parts_of_a_string(total, n):
    text = f"{n}:b"
    table = text.maketrans(":", "-")
    same = text.__class__, text.translate(table), text.split(":")[1], len(text) > 0
    return *same, text[-1], text.__eq__("x"), [*text][-1]


def tensor_field(total, n):
    return f"sum {total:.3f}"


def added(total, n):
    text = ""
    for part in ("a", n, 3):
        text += f"{part};"
    return text


def kept(total, n):
    rows = {"n": f"{n:.1f}", "all": [f"{n}"]}
    rows["all"].append(str(n * 2))
    return rows


TEXTS = (
    f_string, with_width, percent, format_method, pieces, methods, parts_of_a_string, tensor_field, added, kept
)  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_of_what_item_gives(text, capsys):
    def f(x):
        total = x.sum()
        n = total.item()
        said = text(total, n)
        print(said)
        return x + 1, said

    compiled = tg.compile(f, backend="eager")
    for x in inputs():
        ours, expected = compiled(x), f(x)
        assert torch.equal(ours[0], expected[0]) and ours[1] == expected[1]
        printed = capsys.readouterr().out.splitlines()
        assert printed[0] == printed[1]
    most = {with_width: 3, parts_of_a_string: CALLS}  # some read the text
    assert most_entries(compiled) <= most.get(text, 2)


def test_of_an_argument():
    compiled = tg.compile(lambda x, n, tag: (x * n, f"{tag}/{n:.2f}"), backend="eager")
    for n in range(CALLS):
        assert compiled(torch.ones(2), n / 8, f"tag{n}")[1] == f"tag{n}/{n / 8:.2f}"
    assert most_entries(compiled) <= 3


def test_what_reads_a_text_relies_on_it():
    """A branch on a text, and a dictionary's item under it, get an entry for what they found."""

    def f(x, name):
        scale = {"half": 0.5, "double": 2.0}[name.lower()]
        return x * scale if name != "half" else x / 2

    compiled = tg.compile(f, backend="eager")
    for name in ("half", "double", "Half", "DOUBLE", "half", "double"):
        torch.testing.assert_close(compiled(torch.ones(2), name), f(torch.ones(2), name))
    with pytest.raises(KeyError):
        compiled(torch.ones(2), "third")


NAMES = {
    "f_string": lambda k: f"kept_{k}",
    "sum": lambda k: "kept_" + f"{k}",
    "percent": lambda k: "kept_%d" % k,  # noqa: UP031
    "join": lambda k: "_".join(["kept", str(k)]),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_relies_on_the_text_alone(name):
    """What is kept under the name of ``step % 2`` takes an entry for each name, not one for each step."""

    def f(x, store):
        setattr(store, name_of(store.step % 2), x * 2)
        store.step += 1

    name_of = NAMES[name]
    compiled = tg.compile(f, fullgraph=True, backend="eager")
    ours, theirs = SimpleNamespace(step=0), SimpleNamespace(step=0)
    for n in range(8):
        compiled(torch.ones(2) + n, ours)
        f(torch.ones(2) + n, theirs)
        same(vars(ours), vars(theirs))
    assert len(tg.explain(compiled).entries) <= 3  # the first step's is its own


def test_a_text_that_fails_raises_the_users_error():
    def f(x, n):
        return x + 1, f"{n:c}"

    compiled = tg.compile(f, backend="eager")
    assert [compiled(torch.ones(1), n)[1] for n in (65, 66, 67)] == ["A", "B", "C"]
    with pytest.raises(OverflowError):
        compiled(torch.ones(1), 1 << 40)
    assert compiled(torch.ones(1), 68)[1] == "D"


def test_texts_that_fail_are_errors_of_the_program():
    def f(x, n):
        try:
            return x, "a" + n
        except TypeError as error:
            return x, str(error)

    compiled = tg.compile(f, backend="eager")
    for n in (0.5, 0.25, 0.125):
        assert compiled(torch.ones(1), n)[1] == f(torch.ones(1), n)[1]


SHAPES = {
    "f-string": lambda x: f"{x.shape} {list(x.shape)!r}",
    "str": lambda x: str(x.shape) + str(tuple(x.shape)) + repr((x.shape[0],)),
    "nested": lambda x: repr([x.shape, (x.shape[0] // 2,), "a'\"{}", 2.5, None, [True]]),
}


@pytest.mark.parametrize("text", SHAPES.values(), ids=SHAPES)
def test_of_shapes(text):
    compiled = tg.compile(lambda x: (text(x), x * 2, x.nbytes))
    for n in (3, 4, 5, 12, 2):
        x = torch.ones(n, 3)
        assert compiled(x)[::2] == (text(x), x.nbytes)
    assert most_entries(compiled) == 2


def test_lists_that_hold_themselves_or_others_are_eagers(capsys):
    def function(x):
        lines = [x.shape[0]]
        lines.append(lines)
        print(x.shape, [x.shape[0], int])
        return str(lines)

    compiled = tg.compile(function)
    for n in (3, 4, 5):
        x = torch.ones(n)
        assert compiled(x) == function(x)
        first, second = capsys.readouterr().out.splitlines()
        assert first == second
