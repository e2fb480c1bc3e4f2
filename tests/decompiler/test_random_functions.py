"""Functions nobody wrote: random statements, decompiled, compiled again and run beside the original."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from torchglass.decompiler import decompile
from torchglass.decompiler.compare.sameness import compiled

NAMES = ["a", "b", "c"]
ATOMS = st.sampled_from([*NAMES, "0", "1", "2", "a + 1", "b * 2", "f(a)", "f(b, c)", "(a, b)", "None"])


def _expressions() -> Any:
    def wider(inner: Any) -> Any:
        two = st.tuples(inner, inner)
        return st.one_of(
            two.map(lambda t: f"({t[0]} and {t[1]})"),
            two.map(lambda t: f"({t[0]} or {t[1]})"),
            inner.map(lambda t: f"(not {t})"),
            st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
            two.map(lambda t: f"(f({t[0]}) is {t[1]})"),
            two.map(lambda t: f"[{t[0]}, *f({t[1]}, {t[0]})]"),
            inner.map(lambda t: f"[x for x in f({t}, 1) if x]"),
            inner.map(lambda t: f"f'{{{t}}}'" if "'" not in t else "'s'"),
            inner.map(lambda t: f"(d := {t})"),
        )

    return st.recursive(ATOMS, wider, max_leaves=4)


EXPRESSIONS = _expressions()


def _indent(text: str) -> str:
    return "\n".join("    " + line for line in text.split("\n"))


def _blocks(inner: Any) -> Any:
    body = st.lists(inner, min_size=1, max_size=3).map("\n".join).map(_indent)
    test = EXPRESSIONS
    name = st.sampled_from(NAMES)
    return st.one_of(
        st.tuples(test, body).map(lambda t: f"if {t[0]}:\n{t[1]}"),
        st.tuples(test, body, body).map(lambda t: f"if {t[0]}:\n{t[1]}\nelse:\n{t[2]}"),
        st.tuples(test, body, test, body, body).map(
            lambda t: f"if {t[0]}:\n{t[1]}\nelif {t[2]}:\n{t[3]}\nelse:\n{t[4]}"
        ),
        st.tuples(test, body).map(lambda t: f"while f({t[0]}):\n{t[1]}"),
        st.tuples(name, body, body).map(lambda t: f"for {t[0]} in f(1, 2):\n{t[1]}\nelse:\n{t[2]}"),
        st.tuples(name, body).map(lambda t: f"for {t[0]} in f(3, b):\n{t[1]}\n    if f({t[0]}): continue\n    f()"),
        st.tuples(name, test, body).map(lambda t: f"for {t[0]} in f(3, b):\n    if {t[1]}: break\n{t[2]}"),
        st.tuples(body, body).map(lambda t: f"try:\n{t[0]}\nexcept ValueError as e:\n{t[1]}"),
        st.tuples(body, body, body).map(lambda t: f"try:\n{t[0]}\nexcept ValueError:\n{t[1]}\nelse:\n{t[2]}"),
        st.tuples(body, body).map(lambda t: f"try:\n{t[0]}\nfinally:\n{t[1]}"),
        st.tuples(name, body).map(lambda t: f"with m() as {t[0]}:\n{t[1]}"),
    )


SIMPLE = st.one_of(
    st.tuples(st.sampled_from(NAMES), EXPRESSIONS).map(lambda t: f"{t[0]} = {t[1]}"),
    EXPRESSIONS.map(lambda t: f"f({t})"),
    st.just("a, b = b, a"),
    st.sampled_from(NAMES).map(lambda n: f"{n} += 1"),
    EXPRESSIONS.map(lambda t: f"return {t}"),
    EXPRESSIONS.map(lambda t: f"assert {t}, a"),
    st.just("raise ValueError(a)"),
    st.just("pass"),
)
STATEMENTS = st.recursive(SIMPLE, _blocks, max_leaves=8)
FUNCTIONS = st.lists(STATEMENTS, min_size=1, max_size=4).map(
    lambda body: "def g(a, b, c=0, d=None):\n" + _indent("\n".join(body))
)


class _Manager:
    def __init__(self, log: list[Any]) -> None:
        self.log = log

    def __enter__(self) -> int:
        self.log.append("enter")
        return 7

    def __exit__(self, kind: Any, value: Any, trace: Any) -> bool:
        self.log.append(("exit", kind and kind.__name__))
        return kind is ValueError


class _OutOfFuel(BaseException):
    pass


def outcome(code: Any, arguments: tuple[Any, ...]) -> Any:
    """What calling the function does: each call of ``f`` with its arguments, contexts, and result or exception."""
    log: list[Any] = []

    def f(*values: Any) -> Any:
        log.append(repr(values))
        if len(log) > 60:
            raise _OutOfFuel
        if len(log) % 7 == 3:
            raise ValueError(len(log))
        return (len(values), *values) if len(log) % 3 else ()

    space: dict[str, Any] = {"f": f, "m": lambda: _Manager(log)}
    exec(code, space)
    try:
        return log, repr(space["g"](*arguments))
    except (_OutOfFuel, Exception) as error:
        return log, type(error).__name__, str(error)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.generate],
)
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@given(FUNCTIONS)
def test_random_function_behaves_alike(text: str) -> None:
    try:
        module = compile(text, "<random>", "exec", 0, True)
    except SyntaxError:
        return
    code = next(c for c in module.co_consts if hasattr(c, "co_code") and c.co_name == "g")
    again = decompile(code)
    if again.startswith("# not the same"):
        return  # it says so
    compiled(again, code, None)
    again = again.replace("def g(a, b, c, d):", "def g(a, b, c=0, d=None):")
    for arguments in ((0, 1), (2, ()), (None, 3, 4)):
        assert outcome(again, arguments) == outcome(text, arguments), again
