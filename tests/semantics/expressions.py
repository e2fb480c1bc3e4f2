"""Expressions of generated programs, by type."""

from __future__ import annotations

from .writer import expression

KEYS = ["'a'", "'a'", "'a'", "'b'", "'b'", "'b'", "'new'"]
ATTRIBUTES = ["'value'", "'extra', 7"]
STRING_METHODS = ["upper()", "strip()", "replace('a', 'bb')", "split()[0]"]
LIST_CHANGES = ["pop()", "reverse()", "sort()", "clear()", "extend([1, 2])", "insert(1, 9)"]
REMOVALS = ["clear()", "popitem()", "pop('a')"]


# --- int --------------------------------------------------------------------------------------------------------------
@expression("int", 7)
def _int_leaf(w):
    return w.leaf("int")


@expression("int", 3)
def _int_binary(w):
    operator = w.pick(["+", "-", "*", "//", "%", "&", "|", "^"])
    right = w.expr("int")
    if operator in ("//", "%") and w.often(90):
        right = f"(abs({right}) + 2)"
    return f"({w.expr('int')} {operator} {right})"


@expression("int", 4)
def _int_call(w):
    one = lambda: w.expr("int")
    return w.pick([
        lambda: f"len({w.expr(w.pick(['list', 'dict', 'box', 'text', 'set', 'tensor']))})",
        lambda: f"helper({one()}, {one()}, step={one()})",
        lambda: f"helper({one()}, *{w.expr('list')}, **{w.expr('dict')})",
        lambda: f"sum({w.expr('list')})",
        lambda: f"{w.pick(['max', 'min'])}({one()}, {one()})",
        lambda: f"abs({one()})",
        lambda: f"{w.expr('list')}[{w.pick(['0', '-1', '0', one()])}]",
        lambda: w.expr('dict') + f"[{w.pick(KEYS)}]" if w.often(60) else w.expr('dict') + f"[{w.expr('text')}]",
        lambda: f"{w.expr('dict')}.get({w.expr('text')}, {one()})",
        lambda: f"{w.expr('box')}.{w.pick(['value', 'double', 'scale', 'value', 'double', 'made_up'])}",
        lambda: f"{w.expr('box')}[{w.pick(['0', '-1'])}]",
        lambda: f"{w.expr('box')}({one()}, {one()}, sign=-1)",
        lambda: f"{w.expr('function')}({one()})",
        lambda: f"Box.plain({one()})",
        lambda: f"countdown({one()} % 5)",
        lambda: f"failing({w.pick(['2', one()])})",
        lambda: f"branching({w.expr('tensor')}, {one()})",
        lambda: f"({w.walrus()}{one()})",
        lambda: f"({one()} if {w.expr('bool')} else {one()})",
        lambda: f"({w.expr('any')} or {one()})",
        lambda: f"(lambda a, b={one()}: a - b)({one()})",
        lambda: f"next(iter({w.expr('list')}), {one()})",
        lambda: f"functools.reduce(operator.add, {w.expr('list')}, {one()})",
        lambda: f"{w.expr('tensor')}.shape[0]",
        lambda: f"{w.expr('tensor')}.dim()",
        lambda: f"int({w.expr('tensor')}.sum().item())",
        lambda: f"int({w.expr('tensor')}.max() > {one()})",
        lambda: f"{w.expr('list')}.pop()",
        lambda: f"{w.expr('list')}.index({one()})",
        lambda: f"{w.expr('dict')}.setdefault({w.expr('text')}, {one()})",
        lambda: f"{w.expr('dict')}.pop({w.expr('text')}, {one()})",
        lambda: f"sum(1 for v in {w.expr('list')} if v > {one()})",
        lambda: f"Pair({one()}, {one()}).left",
        lambda: f"Record({one()}).size",
        lambda: f"getattr({w.expr('box')}, {w.pick(ATTRIBUTES)})",
        lambda: f"int('{w.r.randrange(30)}', {w.pick(['10', '10', '2'])})",
        lambda: f"math.floor({one()} / {w.pick(['2', '2', one()])})",
        lambda: f"sum(itertools.chain({w.expr('list')}, (1, {one()})))",
        lambda: f"sum(produce({one()} % 4))",
        lambda: f"traced(failing)({one()})",
    ])()  # fmt: skip


# --- bool -------------------------------------------------------------------------------------------------------------
@expression("bool", 4)
def _bool(w):
    return w.pick([
        lambda: f"{w.expr('int')} {w.pick(['>', '<', '==', '!=', '>=', '<='])} {w.expr('int')}",
        lambda: f"{w.expr('int')} < {w.expr('int')} <= {w.expr('int')}",
        lambda: f"not {w.expr('bool')}",
        lambda: f"({w.walrus()}{w.expr('int')}) > 1",
        lambda: f"({w.expr('bool')} and {w.expr('bool')})",
        lambda: f"({w.expr('bool')} or {w.expr('bool')})",
        lambda: f"{w.expr('int')} {w.pick(['in', 'not in'])} {w.expr(w.pick(['list', 'box', 'set']))}",
        lambda: f"{w.expr('text')} in {w.expr('dict')}",
        lambda: f"{w.expr('any')} is {w.pick(['None', 'not None', w.leaf('any')])}",
        lambda: f"isinstance({w.leaf(w.pick(['any', 'box', 'list', 'tensor']))}, "
                f"{w.pick(['int', 'Child', '(list, str)', 'torch.Tensor'])})",
        lambda: f"{w.expr('list')} == {w.expr('list')}",
        lambda: f"{w.leaf(w.pick(['list', 'tensor', 'box']))} is {w.leaf(w.pick(['list', 'tensor', 'box']))}",
        lambda: f"{w.expr('box')} < {w.expr('box')}",
        lambda: f"bool({w.expr(w.pick(['box', 'list', 'text']))})",
        lambda: f"any(v == {w.expr('int')} for v in {w.expr('list')})",
        lambda: f"all({w.expr('list')})",
        lambda: "torch.is_grad_enabled()",
        lambda: f"{w.leaf('tensor')}.requires_grad",
        lambda: f"hasattr({w.expr('box')}, {w.pick(ATTRIBUTES)[:7]})",
    ])()  # fmt: skip


@expression("bool", 1)
def _value_dependent(w):
    return w.pick([
        lambda: f"{w.expr('tensor')}.sum() > {w.expr('int')}",
        lambda: f"({w.expr('tensor')} > 0).any()",
        lambda: f"torch.equal({w.expr('tensor')}, {w.expr('tensor')})",
        lambda: f"branching({w.expr('tensor')}, 1) > 1",
    ])()  # fmt: skip


# --- tensors ----------------------------------------------------------------------------------------------------------
@expression("tensor", 4)
def _tensor_leaf(w):
    return w.leaf("tensor")


@expression("tensor", 5)
def _tensor(w):
    one = lambda: w.expr("tensor")
    return w.pick([
        lambda: f"({one()} {w.pick(['+', '-', '*', '/'])} {w.pick([one(), w.expr('int'), '2.5'])})",
        lambda: f"({w.expr('int')} {w.pick(['+', '-', '*'])} {one()})",
        lambda: f"torch.{w.pick(['sin', 'relu', 'neg', 'abs'])}({one()})",
        lambda: f"{one()}.{w.pick(['cos()', 'clone()', 'detach()', 'view(-1)', 'sum()', 'exp()', 'double()'])}",
        lambda: f"tensor_helper({one()})",
        lambda: f"tensor_helper({one()}, factor={w.expr('int')})",
        lambda: f"{one()}[{w.pick(['1:', '0', '::2', '-1', 'None', w.expr('int')])}]",
        lambda: f"{one()}.{w.pick(['add_', 'mul_', 'sub_'])}({w.pick(['1', one(), w.expr('int')])})",
        lambda: f"torch.stack([{one()}, {one()}])",
        lambda: f"torch.cat([{one()}, {one()}])",
        lambda: f"torch.where({one()} > 0, {one()}, {one()})",
        lambda: f"sum([{one()}, {one()}])",
        lambda: f"({one()} @ {one()})",
        lambda: f"({one()} if {w.expr('bool')} else {one()})",
        lambda: f"torch.full((3,), {w.expr('int')} / 2)",
        lambda: f"torch.arange({w.expr('int')})",
        lambda: f"torch.tensor([{w.expr('int')}, {w.expr('int')}, 1.0])",
        lambda: f"({w.walrus()}{one()})",
        lambda: f"{one()}.to(torch.{w.pick(['float32', 'float64'])})",
        lambda: f"{one()}.reshape({w.pick(['3', '1, 3', '-1', '3, 1', '-1', '2'])})",
        lambda: f"{one()}.expand(2, 3)",
        lambda: f"{one()}.t()",
    ])()  # fmt: skip


# --- containers -------------------------------------------------------------------------------------------------------
@expression("list", 4)
def _list_leaf(w):
    return w.leaf("list")


@expression("list", 4)
def _list(w):
    one = lambda: w.expr("int")
    return w.pick([
        lambda: f"[{one()}, {one()}]",
        lambda: f"[*{w.expr('list')}, {one()}]",
        lambda: f"[v * {one()} for v in {w.expr('list')} if v != {one()}]",
        lambda: f"[v + k for v in {w.expr('list')} for k in range({one()} % 3)]",
        lambda: f"list(range({one()} % 6))",
        lambda: f"sorted({w.expr(w.pick(['list', 'set']))}{w.pick(['', ', reverse=True', ', key=lambda v: -v'])})",
        lambda: f"list({w.expr('dict')}.values())",
        lambda: f"{w.expr('list')}[{w.pick(['1:', ':-1', '::-1', '::2'])}]",
        lambda: f"({w.expr('list')} + {w.expr('list')})",
        lambda: f"list(chained({one()} % 4))",
        lambda: f"list(map(lambda v: v + {one()}, {w.expr('list')}))",
        lambda: f"[a - b for a, b in zip({w.expr('list')}, {w.expr('list')})]",
        lambda: f"[i * v for i, v in enumerate({w.expr('list')}, {one()})]",
        lambda: f"list(itertools.accumulate({w.expr('list')}))",
        lambda: f"list({w.expr('box')})",
        lambda: f"({w.walrus()}{w.expr('list')})",
        lambda: f"{w.expr('list')}.copy()",
        lambda: f"list(reversed({w.expr('list')}))",
        lambda: f"list(filter(None, {w.expr('list')}))",
        lambda: f"[countdown(v % 3) for v in {w.expr('list')}]",
        lambda: f"list(collections.deque({w.expr('list')}, 2))",
        lambda: f"({w.expr('list')} if {w.expr('bool')} else {w.expr('list')})",
    ])()  # fmt: skip


@expression("dict", 3)
def _dict_leaf(w):
    return w.leaf("dict")


@expression("dict", 2)
def _dict(w):
    return w.pick([
        lambda: f"{{'a': {w.expr('int')}, {w.expr('text')}: {w.expr('int')}}}",
        lambda: f"{{**{w.expr('dict')}, 'z': {w.expr('int')}}}",
        lambda: f"{{k: v + {w.expr('int')} for k, v in {w.expr('dict')}.items()}}",
        lambda: f"dict({w.expr('dict')}, b={w.expr('int')})",
        lambda: f"dict(zip('abc', {w.expr('list')}))",
        lambda: f"{{k: i for i, k in enumerate({w.expr('text')})}}",
        lambda: f"({w.expr('dict')} | {w.expr('dict')})",
        lambda: f"{w.expr('dict')}.copy()",
    ])()  # fmt: skip


@expression("set")
def _set(w):
    return w.pick([
        lambda: w.leaf("set"),
        lambda: f"{{{w.expr('int')}, {w.expr('int')}}}",
        lambda: f"set({w.expr('list')})",
        lambda: f"{{v % 3 for v in {w.expr('list')}}}",
        lambda: f"({w.expr('set')} {w.pick(['|', '&', '-', '^'])} {w.expr('set')})",
    ])()  # fmt: skip


@expression("text", 2)
def _text(w):
    return w.pick([
        lambda: w.leaf("text"),
        lambda: f"f'{{{w.quoteless('int')}}}'",
        lambda: f"f'{{{w.quoteless('int')}:>4}}|{{{w.quoteless('any')}!r}}'",
        lambda: f"str({w.expr(w.pick(['int', 'list', 'any']))})",
        lambda: f"'-'.join(str(v) for v in {w.expr('list')})",
        lambda: f"({w.expr('text')} + {w.expr('text')})",
        lambda: f"'%d:%s' % ({w.expr('int')}, {w.expr('text')})",
        lambda: f"'{{}} {{b}}'.format({w.expr('int')}, b={w.expr('text')})",
        lambda: f"{w.expr('text')}.{w.pick(STRING_METHODS)}",
        lambda: f"type({w.leaf(w.pick(['any', 'box', 'int', 'tensor']))}).__name__",
        lambda: f"f'{{tuple({w.leaf('tensor')}.shape)}}'",
    ])()  # fmt: skip


@expression("box", 3)
def _box_leaf(w):
    return w.leaf("box")


@expression("box", 2)
def _box(w):
    return w.pick([
        lambda: f"{w.pick(['Box', 'Child'])}({w.expr('int')}, {w.expr('tensor')})",
        lambda: f"Child.made({w.expr('int')})",
        lambda: f"{w.expr('box')}.bump({w.expr('int')})",
        lambda: f"({w.expr('box')} + {w.pick([w.expr('box'), w.expr('int')])})",
        lambda: f"({w.expr('int')} + {w.expr('box')})",
        lambda: f"max({w.expr('box')}, {w.expr('box')}, key=lambda b: b.value)",
    ])()  # fmt: skip


@expression("function")
def _function(w):
    return w.pick([
        lambda: w.leaf("function"),
        lambda: f"(lambda v: v + {w.expr('int')})",
        lambda: f"functools.partial(helper, {w.expr('int')})",
        lambda: f"{w.expr('box')}.bump",
        lambda: "Box.plain",
        lambda: f"{w.expr('list')}.append",
    ])()  # fmt: skip


@expression("any")
def _any(w):
    return w.pick([
        lambda: w.leaf("any"),
        lambda: w.expr(w.pick(["int", "text", "list", "bool", "dict"])),
        lambda: f"({w.expr('int')}, {w.expr('tensor')})",
        lambda: f"Pair({w.expr('list')}, {w.expr('tensor')})",
        lambda: f"Record({w.expr('int')}, {w.expr('list')})",
        lambda: f"[{w.expr('tensor')}, {w.expr('any')}]",
        lambda: f"{{'t': {w.expr('tensor')}, 'l': {w.expr('list')}}}",
    ])()  # fmt: skip
