"""More for generated programs: collections, enums, dataclasses, descriptors, modules, generators left early."""

from __future__ import annotations

from .writer import expression, statement

COUNTED = ["'a'", "'b'", "'zz'"]


# --- expressions ------------------------------------------------------------------------------------------------------
@expression("int", 3)
def _int(w):
    one = lambda: w.expr("int")
    return w.pick([
        lambda: f"next(closing({one()} % 4), {one()})",
        lambda: f"sum(closing({one()} % 4))",
        lambda: f"next((v for v in {w.expr('list')} if v > {one()}), {one()})",
        lambda: f"Color({one()} % 2 + 1).other.value",
        lambda: f"Color[{w.pick([chr(39) + 'RED' + chr(39), w.expr('text')])}].value",
        lambda: f"(Level.{w.pick(['LOW', 'HIGH'])} + {one()})",
        lambda: f"Point({one()}, {one()}).{w.pick(['x', 'y', 'moved(2).x'])}",
        lambda: f"Slotted({one()}).size",
        lambda: f"Watched(a={one()}).{w.pick(['a', 'b', 'once', 'long_name'])}",
        lambda: f"queue.{w.pick(['popleft()', 'pop()', 'index(' + one() + ')', 'count(2)'])}",
        lambda: f"queue[{w.pick(['0', '-1', one()])}]",
        lambda: f"counts[{w.pick(COUNTED)}]",
        lambda: f"counts.{w.pick(['total()', 'most_common(1)[0][1]'])}",
        lambda: f"len(groups[{w.pick(COUNTED)}])",
        lambda: "order.popitem(last=False)[1]",
        lambda: f"layer.{w.pick(['seen', 'weight.dim()'])}",
        lambda: f"ordered({one()}, {one()}, third={one()})",
        lambda: f"ordered(*[{one()}, 5], **{{'third': {one()}}})",
        lambda: f"ordered({w.pick(['first=1', 'second=1', '1, 2, 3', '1, third=0'])})",
        lambda: f"divmod({one()}, {w.pick(['3', '3', one()])})[{w.pick(['0', '1'])}]",
        lambda: f"round({one()} / 2)",
        lambda: f"max({w.expr('list')}, default={one()})",
        lambda: f"operator.itemgetter({w.pick(['0', '-1'])})({w.expr('list')})",
        lambda: f"operator.attrgetter('value')({w.expr('box')})",
        lambda: f"{w.expr('list')}.count({one()})",
        lambda: f"copy.copy({w.expr('box')}).value",
        lambda: f"len({w.expr('text')}.partition('a')[0])",
        lambda: f"functools.partial(ordered, third={one()})({one()})",
        lambda: f"max({w.expr('list')}, key=lambda v, k={one()}: (v - k) % 3)",
        lambda: f"(lambda *a, **k: len(a) + len(k))(*{w.expr('list')}, **{w.expr('dict')})",
    ])()  # fmt: skip


@expression("bool", 2)
def _bool(w):
    one = lambda: w.expr("int")
    return w.pick([
        lambda: f"Color({one()} % 2 + 1) is Color.RED",
        lambda: f"Point({one()}) {w.pick(['<', '==', '>=', '!='])} Point({one()}, {one()})",
        lambda: f"Point({one()}) in [Point({one()}), Point(1)]",
        lambda: f"Slotted({one()}) == Slotted({one()})",
        lambda: f"Slotted({one()}) in {{Slotted(1): 2, Slotted({one()}): 3}}",
        lambda: f"{w.expr('set')} {w.pick(['<=', '<', '>', '=='])} {w.expr('set')}",
        lambda: f"{w.expr('set')}.isdisjoint({w.expr('list')})",
        lambda: f"{w.expr('text')}.{w.pick(['startswith', 'endswith'])}({w.expr('text')})",
        lambda: f"all(a < b for a, b in itertools.pairwise({w.expr('list')}))",
        lambda: f"any(v > 1 for v in closing({one()} % 4))",
        lambda: f"{one()} in closing({one()} % 4)",
        lambda: f"callable({w.expr('any')})",
        lambda: f"({w.expr('list')} < {w.expr('list')})",
        lambda: "layer.training",
        lambda: f"{w.pick(COUNTED)} in {w.pick(['order', 'counts', 'groups'])}",
    ])()  # fmt: skip


@expression("tensor", 3)
def _tensor(w):
    one = lambda: w.expr("tensor")
    return w.pick([
        lambda: f"layer({one()}, scale={w.expr('int')})",
        lambda: f"layer({one()})",
        lambda: f"(layer.weight * {w.expr('int')})",
        lambda: "(layer.calls + 1)",
        lambda: "torch.randn(3)",
        lambda: f"torch.rand_like({one()})",
        lambda: f"F.dropout({one()}, 0.5)",
        lambda: f"F.{w.pick(['relu', 'gelu', 'silu'])}({one()})",
        lambda: f"{one()}.chunk(2)[0]",
        lambda: f"{one()}.{w.pick(['flip(0)', 'cumsum(0)', 'max(0).values', 'sort().values', 'T', 'data', 'float()'])}",
        lambda: f"{one()}.masked_fill({one()} > 0, {w.expr('int')})",
        lambda: f"{one()}.new_zeros({w.pick(['3', '1', '()'])})",
        lambda: f"torch.einsum('i,i->i', {one()}, {one()})",
        lambda: f"{one()}.unsqueeze(0).squeeze()",
        lambda: f"({one()} * {one()}.sum().item())",
        lambda: f"torch.tensor({w.expr('list')}, dtype=torch.float32)",
        lambda: f"sum(({one()} for _ in range({w.expr('int')} % 3)), torch.zeros(3))",
        lambda: f"functools.reduce(torch.add, [{one()}, {one()}])",
        lambda: f"torch.clamp({one()}, min={w.expr('int')})",
        lambda: f"{one()}.pow({w.pick(['2', '3', w.expr('int')])})",
        lambda: f"torch.cat(list({one()}.split(1)))",
        lambda: f"copy.deepcopy({w.leaf('tensor')}.detach())",
    ])()  # fmt: skip


@expression("list", 2)
def _list(w):
    one = lambda: w.expr("int")
    return w.pick([
        lambda: f"[*closing({one()} % 4)]",
        lambda: f"list({w.pick(['queue', 'order.values()', 'counts.values()', 'groups.values()'])})"
                if w.often(60) else "list(groups['a'])",
        lambda: "[c.value for c in Color]",
        lambda: f"[p.x for p in sorted([Point({one()}), Point({one()}, 1)])]",
        lambda: f"list(dict.fromkeys({w.expr('list')}))",
        lambda: f"list(itertools.takewhile(lambda v: v > {one()}, {w.expr('list')}))",
        lambda: f"[len(list(g)) for _, g in itertools.groupby({w.expr('list')})]",
        lambda: f"[a * b for a, b in itertools.product({w.expr('list')}[:2], {w.expr('list')}[:2])]",
        lambda: f"[a or 0 for a, _ in itertools.zip_longest({w.expr('list')}, {w.expr('list')})]",
        lambda: f"[f({one()}) for f in [lambda v, k=k: v * k for k in range(2)]]",
        lambda: f"[f() for f in [lambda: k for k in range({one()} % 3)]]",
        lambda: f"[(y := v + 1, y * 2)[1] for v in {w.leaf('list')}]" if w.depth == 1 else w.leaf("list"),
        lambda: f"sum([[v] * 2 for v in {w.expr('list')}], [])",
        lambda: f"list(Record({one()}, {w.expr('list')}).tags)",
        lambda: f"copy.deepcopy({w.expr('list')})",
        lambda: f"[int(v) for v in {w.expr('tensor')}.reshape(-1).tolist()[:3]]",
    ])()  # fmt: skip


@expression("dict", 1)
def _dict(w):
    return w.pick([
        lambda: f"dict({w.pick(['order', 'counts'])})",
        lambda: f"dict(collections.ChainMap({w.expr('dict')}, {w.expr('dict')}))",
        lambda: f"dict(sorted({w.expr('dict')}.items(), key=str))",
        lambda: f"dict(collections.Counter({w.expr('text')}))",
        lambda: f"{{**order, **{w.expr('dict')}}}",
        lambda: f"vars(Watched(a={w.expr('int')}))",
    ])()  # fmt: skip


@expression("text", 1)
def _text(w):
    return w.pick([
        lambda: f"Color({w.expr('int')} % 2 + 1).name",
        lambda: f"repr({w.pick(['Point(1)', 'Slotted(2)', 'Color.RED', 'queue', 'order', 'Record(1)'])})",
        lambda: f"''.join(sorted({w.expr('text')}))",
        lambda: f"{w.expr('text')}[{w.pick(['0:2', '::-1', '-1:'])}]",
        lambda: f"({w.expr('text')} * ({w.expr('int')} % 3))",
        lambda: f"{w.expr('text')}.{w.pick(['title()', 'zfill(4)', 'rjust(6, chr(42))', 'join([str(1), str(2)])'])}",
    ])()  # fmt: skip


@expression("any", 1)
def _any(w):
    return w.pick([
        lambda: w.pick(["queue", "order", "counts", "groups", "Color.RED", "Level.LOW", "Point"]),
        lambda: f"Point({w.expr('int')}, {w.expr('int')})",
        lambda: f"Slotted({w.expr('int')}, {w.expr('list')})",
        lambda: f"Watched(a={w.expr('any')})",
        lambda: f"collections.OrderedDict(k={w.expr('tensor')})",
        lambda: f"collections.deque([{w.expr('any')}], 3)",
        lambda: f"slice({w.expr('int')}, None)",
        lambda: f"range({w.expr('int')})",
        lambda: f"dataclasses.asdict(Record({w.expr('int')}, {w.expr('list')}))",
        lambda: f"copy.copy({w.expr(w.pick(['list', 'dict', 'box']))})",
        lambda: f"{w.leaf('tensor')}.shape",
        lambda: f"{w.leaf('tensor')}.dtype",
        lambda: f"{w.expr('tensor')}.unbind()",
    ])()  # fmt: skip


# --- statements -------------------------------------------------------------------------------------------------------
@statement(4)
def _change_library(w):
    one = lambda: w.expr("int")
    w.line(w.pick([
        lambda: f"queue.{w.pick(['append', 'appendleft', 'remove'])}({one()})",
        lambda: f"queue.{w.pick(['rotate(1)', 'clear()', 'reverse()'])}",
        lambda: f"queue.extend({w.expr('list')})",
        lambda: f"counts[{w.pick(COUNTED)}] {w.pick(['+=', '-=', '='])} {one()}",
        lambda: f"counts.{w.pick(['update', 'subtract'])}({w.expr('text')})",
        lambda: f"groups[{w.expr('text')}].append({one()})",
        lambda: f"order[{w.expr('text')}] = {one()}",
        lambda: f"order.move_to_end({w.pick(COUNTED)}{w.pick(['', ', last=False'])})",
        lambda: f"del {w.pick(['order', 'counts', 'groups'])}[{w.pick(COUNTED)}]",
        lambda: f"layer.{w.pick(['seen', 'extra'])} = {one()}",
        lambda: f"layer.calls.add_({one()})",
        lambda: f"layer.train({w.expr('bool')})",
        lambda: "layer.calls = layer.calls * 2",
        lambda: f"{w.leaf('list')}.sort(key=lambda v: -v)",
        lambda: f"{w.leaf('list')}[:] = sorted({w.expr('list')})",
        lambda: f"{w.leaf('list')}.extend(closing({one()} % 3))",
        lambda: f"table.update({w.expr('dict')})",
        lambda: f"setattr(Box, 'scale', {one()})",
        lambda: f"{w.leaf('box')}.__dict__['value'] = {one()}",
        lambda: f"vars({w.leaf('box')}).update(value={one()})",
    ])())  # fmt: skip


@statement(2)
def _object(w):
    """An object with writes that are noted, or with limits."""
    name = w.fresh("o")
    if w.often(50):
        w.line(f"{name} = Watched(a={w.expr('int')})")
        w.line(f"{name}.b {w.pick(['=', '+='])} {w.expr('int')}")
        w.line(f"log.append(({name}.a, {name}.once, {name}.missing))")
        if w.often(30):
            w.line(f"del {name}.{w.pick(['a', 'b', 'c'])}")
    else:
        w.line(f"{name} = Slotted({w.expr('int')})")
        w.line(f"{name}.size {w.pick(['=', '+=', '*='])} {w.expr('int')}")
        w.line(f"log.append({w.pick([name, name + '.size', name + '.right', name + '.left'])})")
    w.declare(**{name: "any"})


@statement(2)
def _left_early(w):
    """A generator that a loop may leave, or that is asked by hand."""
    if w.nesting >= 4:
        return w.line(f"log.append(sum(closing({w.expr('int')} % 3)))")
    name, v = w.fresh("q"), w.fresh("v")
    if w.often(60):
        before = dict(w.names)
        w.declare(**{v: "int"})
        w.loops += 1
        w.body(f"for {v} in closing({w.expr('int')} % 5):", lambda: w.line(f"if {w.expr('bool')}: break"))
        w.loops -= 1
        w.names = before
        return None
    w.line(f"{name} = {w.pick(['closing', 'chained', 'produce'])}({w.expr('int')} % 4)")
    for _ in range(1 + w.r.randrange(3)):
        w.line(w.pick([
            f"log.append(next({name}, None))",
            f"log.append(list({name}))",
            f"{name}.close()",
            f"log.append({name}.send(None))",
        ]))  # fmt: skip
    return None


@statement(1)
def _stack(w):
    if w.nesting >= 4:
        return w.line(f"log.append({w.expr('int')})")
    name = w.fresh("s")
    first = lambda: w.line(f"{name}.{w.pick(['callback(log.append, 5)', 'enter_context(Manager(chr(120)))'])}")
    return w.body(f"with contextlib.ExitStack() as {name}:", first=first)


@statement(1)
def _decorated(w):
    """Inner functions and classes under decorators."""
    name = w.fresh("h")
    kind = w.pick(["traced", "context", "dataclass", "property"])
    if kind == "traced":
        w.line("@traced")
        w.line(f"def {name}(v, *, k={w.expr('int')}):")
        w.line(f"    return v + k + {w.expr('int')}")
        w.declare(**{name: "function"})
    elif kind == "context":
        w.line("@contextlib.contextmanager")
        w.line(f"def {name}(v):")
        w.line(f"    log.append(v + {w.expr('int')})")
        w.line("    try:")
        w.line("        yield v")
        w.line("    finally:")
        w.line("        log.append('left')")
        w.body(f"with {name}({w.expr('int')}) as {name}_in:", keep=True)
    elif kind == "dataclass":
        w.line("@dataclass(order=True)")
        w.line(f"class {name}:")
        w.line("    a: int")
        w.line(f"    b: int = {w.expr('int')}")
        w.line(f"log.append(({name}({w.expr('int')}) < {name}({w.expr('int')}), {name}(1).b))")
    else:
        w.line(f"class {name}(Watched):")
        w.line("    @property")
        w.line("    def twice(self):")
        w.line("        return self.a * 2")
        w.line("    @twice.setter")
        w.line("    def twice(self, new):")
        w.line(f"        self.a = new + {w.expr('int')}")
        w.line(f"{name}_made = {name}(a={w.expr('int')})")
        w.line(f"{name}_made.twice = {w.expr('int')}")
        w.line(f"log.append(({name}_made.twice, Watched.kinds[-1]))")
