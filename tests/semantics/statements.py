"""Statements of generated programs."""

from __future__ import annotations

import functools

from .expressions import ATTRIBUTES, LIST_CHANGES, REMOVALS
from .writer import statement


# --- simple statements ------------------------------------------------------------------------------------------------
@statement(14)
def _assign(w):
    kind = w.kind()
    w.assign(kind, w.expr(kind))


@statement(6)
def _change(w):
    one = lambda: w.expr("int")
    del_key = w.pick(["'a'", "'b'", w.expr("text")])
    held = w.leaf(w.pick(["list", "list", "dict", "box", "tensor", "set"]))
    w.line(w.pick([
        lambda: f"{w.leaf('list')}.append({one()})",
        lambda: f"{w.leaf('list')}.{w.pick(LIST_CHANGES)}",
        lambda: f"{w.leaf('list')}[{w.pick(['0', '-1', one()])}] = {one()}",
        lambda: f"{w.leaf('list')}[{w.pick(['1:', ':1', '::2'])}] = {w.expr('list')}",
        lambda: f"{w.leaf('list')}.append({held})",
        lambda: f"del {w.leaf('list')}[{w.pick(['0', '-1', '1:'])}]",
        lambda: f"{w.leaf('dict')}[{w.expr('text')}] = {one()}",
        lambda: f"{w.leaf('dict')}.update(a={one()}, q={one()})",
        lambda: f"{w.leaf('dict')}.{w.pick(REMOVALS)}",
        lambda: f"del {w.leaf('dict')}[{del_key}]",
        lambda: f"{w.leaf('dict')}['held'] = {held}",
        lambda: f"{w.leaf('box')}.value {w.pick(['=', '+=', '-='])} {one()}",
        lambda: f"{w.leaf('box')}.double = {one()}",
        lambda: f"{w.leaf('box')}.content = {w.expr('tensor')}",
        lambda: f"{w.leaf('box')}.extra = {held}",
        lambda: f"setattr({w.leaf('box')}, {w.pick(ATTRIBUTES)[:7]}, {one()})",
        lambda: f"del {w.leaf('box')}.{w.pick(['value', 'extra'])}",
        lambda: f"{w.leaf('box')}.items.append({one()})",
        lambda: f"{w.leaf('box')}[0] = {one()}",
        lambda: f"Box.scale = {one()}",
        lambda: f"{w.leaf('set')}.{w.pick(['add', 'discard', 'remove'])}({one()})",
        lambda: f"log.append({w.expr('any')})",
        lambda: f"shared.append({one()})",
        lambda: f"table[{w.expr('text')}] = {one()}",
    ])())  # fmt: skip


@statement(5)
def _change_tensor(w):
    one = lambda: w.expr("tensor")
    w.line(w.pick([
        lambda: f"{w.leaf('tensor')}.{w.pick(['add_', 'mul_', 'copy_', 'sub_'])}({w.pick(['2', one()])})",
        lambda: f"{w.leaf('tensor')}[{w.pick(['0', '1:', '::2', '...'])}] = {w.pick(['7.0', w.expr('int'), one()])}",
        lambda: f"{w.leaf('tensor')}[{w.pick(['0', '1:'])}] {w.pick(['+=', '*='])} {w.pick(['2', one()])}",
        lambda: f"{w.leaf('tensor')}.zero_()",
        lambda: f"{w.leaf('tensor')}[1:].add_({one()})",
        lambda: f"torch.add({one()}, 1, out={w.leaf('tensor')})",
    ])())  # fmt: skip


@statement(4)
def _augment(w):
    kind = w.pick(["int", "tensor", "list", "box", "text"])
    own = w.own(kind)
    if not own:
        return _assign(w)
    operators = {"int": ["+=", "-=", "*=", "//=", "%="], "tensor": ["+=", "*=", "-="], "list": ["+="], "box": ["+="],
                 "text": ["+="]}  # fmt: skip
    other = w.expr("int") if kind == "box" else w.expr(kind)
    w.line(f"{w.pick(own)} {w.pick(operators[kind])} {other}")


@statement(2)
def _global(w):
    if "counter" not in w.globals:
        return w.line(f"table['g'] = {w.expr('int')}")
    w.line(w.pick([lambda: f"counter += {w.expr('int')}", lambda: f"counter = {w.expr('int')}"])())


@statement(3)
def _unpack(w):
    a, b, c = w.fresh("u"), w.fresh("u"), w.fresh("u")
    text, kinds = w.pick([
        lambda: (f"{a}, {b} = {w.expr('int')}, {w.expr('list')}", {a: "int", b: "list"}),
        lambda: (f"{a}, *{b} = {w.expr('list')}", {a: "int", b: "list"}),
        lambda: (f"{a}, ({b}, *{c}) = {w.expr('int')}, {w.expr('list')}", {a: "int", b: "int", c: "list"}),
        lambda: (f"{a} = {b} = {w.expr('list')}", {a: "list", b: "list"}),
        lambda: (f"{a}, {b}, {c} = {w.expr('tensor')}", {a: "tensor", b: "tensor", c: "tensor"}),
        lambda: (f"{a}, {b} = Pair({w.expr('tensor')}, {w.expr('dict')})", {a: "tensor", b: "dict"}),
        lambda: (f"*{a}, {b} = {w.expr('list')}, {w.expr('int')}", {a: "list", b: "int"}),
    ])()  # fmt: skip
    w.line(text)
    w.declare(**kinds)


@statement(2)
def _print(w):
    w.line(f"print({w.expr(w.pick(['int', 'text', 'list']))}, {w.expr(w.pick(['int', 'tensor', 'any']))})")


@statement(2)
def _delete(w):
    own = [n for n in w.names if n[-1].isdigit() and n in w.local]
    if not own or not w.often(40):
        return _assign(w)
    name = w.pick(own)
    w.line(f"del {name}")
    del w.names[name]


@statement(2)
def _assert(w):
    w.line(f"assert {w.expr('bool')} or {w.expr('bool')}, {w.expr('text')}")


@statement(2)
def _leave(w):
    if w.nesting == 0:
        return _assign(w)
    if w.loops and w.often(70):
        return w.line(w.pick(["break", "continue"]))
    w.line(f"return {result(w)}")


@statement(2)
def _raise(w):
    if w.nesting == 0:
        return _assign(w)
    options = [
        lambda: f"raise Trouble({w.expr('int')})",
        lambda: f"raise Deeper({w.expr('int')}, {w.expr('text')})",
        lambda: "raise KeyError",
        lambda: f"raise ValueError({w.expr('text')}) from Trouble(1)",
        lambda: f"raise IndexError({w.expr('text')}) from None",
    ]
    if w.handlers:
        options += [lambda: "raise"] * 3
    w.line(w.pick(options)())


def result(w):
    return w.pick([
        lambda: w.expr("tensor"),
        lambda: w.expr("any"),
        lambda: f"{w.leaf('list')}, {w.leaf('tensor')}, {w.leaf('list')}",
        lambda: f"{{'r': {w.leaf('box')}, 's': {w.expr('tensor')}, 'd': {w.leaf('dict')}}}",
        lambda: f"[{w.leaf('function')}, {w.leaf('any')}, {w.leaf('tensor')}[1:]]",
        lambda: f"({', '.join(list(w.names)[7:]) or 'x'},)",
    ])()  # fmt: skip


# --- compound statements ----------------------------------------------------------------------------------------------
def _deep(w) -> bool:
    return w.nesting >= 4


@statement(5)
def _if(w):
    if _deep(w):
        return _assign(w)
    w.body(f"if {w.expr('bool')}:")
    if w.often(30):
        w.body(f"elif {w.expr('bool')}:")
    if w.often(50):
        w.body("else:")


@statement(5)
def _for(w):
    if _deep(w):
        return _assign(w)
    names = dict(w.names)
    v, k = w.fresh("v"), w.fresh("k")
    head, kinds = w.pick([
        lambda: (f"for {v} in range({w.expr('int')} % 5):", {v: "int"}),
        lambda: (f"for {v} in {w.expr('list')}[:4]:", {v: "int"}),
        lambda: (f"for {v} in itertools.islice({w.leaf('list')}, 5):", {v: "int"}),
        lambda: (f"for {k}, {v} in {w.leaf('dict')}.items():", {k: "text", v: "int"}),
        lambda: (f"for {k}, {v} in list({w.expr('dict')}.items()):", {k: "text", v: "int"}),
        lambda: (f"for {k}, {v} in enumerate({w.expr('list')}[:4]):", {k: "int", v: "int"}),
        lambda: (f"for {k}, {v} in zip({w.expr('list')}, ({w.expr('tensor')}, {w.expr('tensor')})):",
                 {k: "int", v: "tensor"}),
        lambda: (f"for {v} in {w.expr('tensor')}:", {v: "tensor"}),
        lambda: (f"for {v} in produce({w.expr('int')} % 4):", {v: "int"}),
        lambda: (f"for {v} in (Box(1), {w.leaf('box')}):", {v: "box"}),
        lambda: (f"for {v} in sorted({w.expr('dict')}):", {v: "text"}),
    ])()  # fmt: skip
    w.declare(**kinds)
    w.loops += 1
    w.body(head)
    w.loops -= 1
    if not w.often(10):
        w.names = names
    if w.often(30):
        w.body("else:")


@statement(3)
def _while(w):
    if _deep(w):
        return _assign(w)
    i = w.fresh("i")
    w.line(f"{i} = 0")
    w.loops += 1
    extra = f" and {w.expr('bool')}" if w.often(30) else ""
    head = f"while {i} < {w.pick(['3', 'n % 5', '2'])}{extra}:"
    w.body(head, first=lambda: w.line(f"{i} += 1"))
    w.loops -= 1
    if w.often(25):
        w.body("else:")


USES_OF_ERRORS = [
    None,
    "log.append((type({e}).__name__, str({e})))",
    "log.append({e}.args)",
    "raise Deeper(5) from {e}",
    "log.append(type({e}.__context__).__name__)",
    "raise",
]


@statement(7)
def _try(w):
    if _deep(w):
        return _assign(w)
    w.body("try:")
    handled = False
    if w.often(85):
        handled = True
        kinds = ["Trouble", "Exception", "(KeyError, IndexError)", "ZeroDivisionError", "Deeper", "RuntimeError",
                 "LookupError", "TypeError"]  # fmt: skip
        for _ in range(1 + w.often(25)):
            error = w.fresh("e")
            before = dict(w.names)
            w.handlers += 1
            use = w.pick(USES_OF_ERRORS)
            tail = None if use is None else functools.partial(w.line, use.format(e=error))
            w.body(f"except {w.pick(kinds)} as {error}:", tail)
            w.handlers -= 1
            w.names = before
        if w.often(25):
            w.body("else:")
    if not handled or w.often(30):
        w.body("finally:")


@statement(5)
def _with(w):
    if _deep(w):
        return _assign(w)
    manager = lambda: w.pick([
        lambda: f"Manager({w.expr('text')})",
        lambda: "torch.no_grad()",
        lambda: f"managed({w.expr('text')}) as {w.fresh('m')}",
        lambda: f"Manager('c', {w.pick(['Trouble', 'LookupError', 'Exception'])})",
        lambda: "contextlib.suppress(Trouble, ZeroDivisionError)",
        lambda: "torch.enable_grad()",
        lambda: f"contextlib.nullcontext({w.expr('int')})",
        lambda: "torch.set_grad_enabled(False)",
    ])()  # fmt: skip
    w.body(f"with {manager()}{', ' + manager() if w.often(20) else ''}:", keep=w.often(50))


@statement(3)
def _match(w):
    if _deep(w):
        return _assign(w)
    subject = w.pick([w.expr("any"), w.leaf("list"), w.leaf("dict"), w.leaf("box"), w.expr("int")])
    w.line(f"match {subject}:")
    w.indent += 1
    cases = [
        (lambda: str(w.r.randrange(3)), {}),
        (lambda: "int() as m1 if m1 > 2", {"m1": "int"}),
        (lambda: "[m2, *m3]", {"m3": "list"}),
        (lambda: "{'a': m4, **m5}", {"m4": "int", "m5": "dict"}),
        (lambda: "Child(value=m6)", {"m6": "int"}),
        (lambda: "Box(value=1 | 2 | 3) as m7", {"m7": "box"}),
        (lambda: "str() | None", {}),
        (lambda: "(m8, torch.Tensor() as m9)", {"m9": "tensor"}),
    ]
    start = w.r.randrange(len(cases))
    for n in range(1 + w.r.randrange(3)):
        pattern, kinds = cases[(start + n) % len(cases)]
        before = dict(w.names)
        w.declare(**kinds)
        w.body(f"case {pattern()}:")
        w.names = before
    if w.often(60):
        w.body("case _:")
    w.indent -= 1


@statement(4)
def _inner(w):
    """An inner function that closes over names, perhaps writes one, and is called."""
    if _deep(w) or w.functions >= 2:
        return _assign(w)
    name, parameter, generator = w.fresh("g"), w.fresh("p"), w.often(25)
    ints = [n for n in w.own("int") if n != "counter"]
    written = w.pick(ints) if ints and w.often(50) else None
    w.line(f"def {name}({parameter}, {w.fresh('d')}={w.expr('int')}, *{w.fresh('r')}):")
    outer = w.names, w.local, w.loops, w.handlers, w.nesting
    w.names, w.local, w.loops, w.handlers = dict(w.names), set(), 0, 0
    w.functions += 1
    w.indent += 1
    w.declare(**{parameter: "int"})
    if written:
        w.line(f"nonlocal {written}")
        w.line(f"{written} {w.pick(['+=', '-='])} {parameter}")
    if w.often(30):
        w.line("global counter")
        w.line(f"counter += {parameter}")
    if generator:
        w.line(f"got = yield {w.expr('int')}")
        w.body(f"for {w.fresh('v')} in range(2):", lambda: w.line(f"yield {w.expr('int')}"))
    else:
        w.body("if True:", lambda: w.line(f"return {w.expr('int')}"))
    w.indent -= 1
    w.functions -= 1
    w.names, w.local, w.loops, w.handlers, w.nesting = outer
    if generator:
        w.assign("list", f"list({name}({w.expr('int')}))")
    else:
        w.declare(**{name: "function"})
        w.assign("int", f"{name}({w.expr('int')})")


@statement(1)
def _class(w):
    if _deep(w):
        return _assign(w)
    name = w.fresh("C")
    w.line(f"class {name}({w.pick(['Box', 'Child'])}):")
    w.line(f"    size = {w.expr('int')}")
    w.line("    def bump(self, by=1):")
    w.line(f"        self.items.append({w.expr('int')})")
    w.line("        return super().bump(by)")
    w.assign("box", f"{name}({w.expr('int')})")
