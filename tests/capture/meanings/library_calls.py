"""Every public function of the modules that programs lean on, called once with plausible arguments.

A row is an expression over ``x`` (a tensor), ``n`` (3, then 4), ``a`` (0.5, then 0.25), ``s`` (a list of ints), ``d`` (a
dictionary) and the names below; ``breaks: `` before it says that the call ends the graph.
"""

# ruff: noqa
from __future__ import annotations

import collections, copy, functools, inspect, itertools, logging, math, operator, re, sys, typing, warnings

import torch

MODULES = (math, itertools, functools, operator, collections, copy, typing, inspect, warnings, logging)

# Public names that no function of a model calls: abstract types, readers of files, formatters of text for reports.
LEFT_OUT = {
    "itertools": (),
    "typing": "AbstractSet ByteString Container ContextManager Hashable ItemsView Iterable Iterator KeysView Mapping "
    "MappingView MutableMapping MutableSequence MutableSet Sequence Sized ValuesView Awaitable AsyncIterator "
    "AsyncIterable Coroutine Collection AsyncGenerator AsyncContextManager Reversible SupportsAbs SupportsBytes "
    "SupportsComplex SupportsFloat SupportsIndex SupportsInt SupportsRound Generator BinaryIO IO Match Pattern TextIO "
    "Annotated Any Callable ClassVar Concatenate Final Generic Literal Optional Protocol Tuple Type Union "
    "LiteralString Never NoReturn NotRequired ParamSpecArgs ParamSpecKwargs Required Self Text TypeAlias TypeGuard "
    "Unpack assert_never reveal_type".split(),
    "inspect": "ArgInfo Arguments Attribute BlockFinder BoundArguments ClassFoundException ClosureVars EndOfBlock "
    "FrameInfo FullArgSpec Signature Traceback findsource formatannotationrelativeto formatargvalues getargs "
    "getargvalues getblock getcoroutinelocals getcoroutinestate getgeneratorlocals getgeneratorstate getinnerframes getlineno indentsize "
    "walktree trace getframeinfo".split(),
    "logging": "BufferingFormatter FileHandler setLoggerClass setLogRecordFactory captureWarnings shutdown disable "
    "basicConfig warn getLogRecordFactory StreamHandler".split(),
    "warnings": ["showwarning"],
    "copy": ["Error"],
}

logger = logging.getLogger("tests.capture.library")
Point = collections.namedtuple("Point", "x y")
T = typing.TypeVar("T")


class Bag:
    """A class with something of each kind to look at."""

    size: int = 3

    def __init__(self, value: int = 1) -> None:
        self.value = value

    def method(self, k: int = 2) -> int:
        return self.value * k

    def __eq__(self, other):
        return self.value == other.value

    def __lt__(self, other):
        return self.value < other.value

    @property
    def twice(self):
        return self.value * 2

    def __call__(self, k=1):
        return self.value + k


bag = Bag(5)


@functools.singledispatch
def shown(value):
    return "other"


@shown.register(int)
def _(value):
    return "int"


def plain(p, q=2, *args, k: int = 3, **rest) -> int:
    "Adds."
    return p + q + k


def entered(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)

    return wrapper


@functools.lru_cache
def cached(k):
    return k * 2


def method_of(cls):
    class Made:
        half = functools.partialmethod(Bag.method, 3)
        value = 4

        @functools.cached_property
        def lazily(self):
            return self.value + 1

        @functools.singledispatchmethod
        def kind(self, k):
            return "other"

        @kind.register
        def _(self, k: int):
            return "int"

    return Made()


def stream(k):
    yield from range(k)


ROWS = {
    "math": """
acos(a)
acosh(a + 1)
asin(a)
asinh(a)
atan(a)
atan2(a, n)
atanh(a)
cbrt(a)
ceil(a), floor(a), trunc(a + n)
comb(n, 2), perm(n, 2), factorial(n)
copysign(n, -a)
cos(a), sin(a), tan(a)
cosh(a), sinh(a), tanh(a)
degrees(a), radians(n)
dist([a, 1], (2, n))
erf(a), erfc(a)
exp(a), exp2(a), expm1(a)
fabs(-a)
fmod(n, a), remainder(n, a)
frexp(a), modf(a + n)
fsum([a, 0.1, n]), fsum(s)
gamma(a), lgamma(a)
gcd(n, 6), lcm(n, 6), gcd(*s)
hypot(a, n), hypot(a)
isclose(a, 0.5), isclose(a, 0.5, rel_tol=1, abs_tol=n)
isfinite(a), isinf(math.inf), isnan(a)
isqrt(n)
ldexp(a, n)
log(a), log10(a), log1p(a), log2(a), log(a, n)
nextafter(a, 1), ulp(a)
pow(a, n), sqrt(a)
prod(s), prod((x, n), start=2)
sqrt(x.numel()) * x, floor(x.shape[0] / 2), exp(-x.dim()), x / sqrt(a), x * pi, inf, nan, tau, e
ceil(n / 2) * x, log(n) + x, sqrt(-a)
factorial(a)
""",
    "itertools": """
list(accumulate(s)), list(accumulate([x, x], operator.mul, initial=n))
list(chain(s, [x], d)), list(chain.from_iterable([s, (x,)]))
list(combinations(s, 2)), list(combinations([x, a, n], 2)), list(combinations_with_replacement(s, 2))
list(compress([x, 2, 3], [1, 0, n]))
list(zip(count(n, 2), s)), list(zip(cycle([x, 1]), s)), next(count(a))
list(dropwhile(lambda v: v > 1, s)), list(takewhile(lambda v: v > 1, s)), list(filterfalse(None, [0, x.dim(), n - 3]))
[(k, list(g)) for k, g in groupby(sorted(s + s))], [(k, len(list(g))) for k, g in groupby([x, x], torch.Tensor.dim)]
list(islice(s, 1, None)), list(islice(count(), 1, 8, n)), list(islice((x * k for k in count(1)), 3))
list(pairwise([x, 1, n])), list(permutations(s, 2)), list(permutations([x, n]))
list(product(s, [x])), list(product([0, n], repeat=2))
list(repeat(x, n)), list(zip(s, repeat(a)))
list(starmap(torch.add, [(x, 1), (x, n)])), list(map(lambda p: p[0], tee(s, 2)[1])) if 0 else [list(t) for t in tee(s)]
list(zip_longest(s, [x], fillvalue=n))
sum(map(torch.sum, repeat(x, 3))), next(chain([x]), None), next(iter(islice(s, 9, None)), a)
list(islice(s, -1))
""",
    "functools": """
update_wrapper(lambda v: v, plain).__name__, wraps(plain)(lambda v: v + 1)(x), entered(plain)(x, 1), entered(plain).__wrapped__(1)
total_ordering(type('K', (), {'__lt__': lambda p, q: True, '__eq__': lambda p, q: False}))() >= 3
breaks: cache(lambda v: v + 1)(n), lru_cache(maxsize=2)(plain)(n), cached(n), cached(2)
sorted(s, key=cmp_to_key(lambda p, q: q - p))
reduce(operator.add, s), reduce(torch.add, [x, x, x]), reduce(lambda p, q: p * q, [], n)
reduce(operator.add, [])
partial(plain, 1)(n), partial(torch.add, alpha=n)(x, x), partial(plain, q=x).keywords, partial(plain, 1).func(4)
breaks: method_of(0).half(), method_of(0).lazily, method_of(0).kind(1), method_of(0).kind(a)
breaks: shown(n), shown(x), shown(a), singledispatch(lambda v: v)(x)
breaks: partialmethod(plain, 1).args, singledispatchmethod(plain).func(n), cached_property(plain).func(n)
""",
    "operator": """
abs(x), abs(-n), add(x, n), add(a, n), sub(x, a), mul(x, x), truediv(n, a), floordiv(n, 2), mod(n, 2), pow(x, 2), pow(a, n)
and_(n, 1), or_(n, 4), xor(n, 7), inv(n), invert(x > 0), lshift(n, 2), rshift(n, 1), neg(x), pos(x), pos(a), and_(x > 0, x < 1)
attrgetter('shape')(x), attrgetter('value', 'twice')(bag), attrgetter('__class__.__name__')(bag)
itemgetter(1)(s), itemgetter(0, 2)(s), itemgetter('k')(d), itemgetter(0)(x), itemgetter(slice(1))(s)
methodcaller('sum')(x), methodcaller('method', k=n)(bag), methodcaller('clone')(x), call(plain, n), call(torch.neg, x)
breaks: concat(s, [1]), contains(s, 3), contains(d, n), countOf(s, 3), indexOf(s, 1), length_hint(s), length_hint(iter(s)), getitem(s, 0), getitem(x, 0)
[delitem(k, 0) for k in [[x, 1]]], [(setitem(k, 0, x), k) for k in [[1, 2]]], [(delitem(k, 'a'), k) for k in [dict(a=1)]]
eq(n, 3), ne(x.dim(), 3), lt(a, n), le(x, 0), ge(x, a), gt(n, a), eq(s, s), is_(x, x), is_not(x, None), not_(s), truth(d), index(n)
iadd([1], [x]), iadd(x.clone(), 1), iand(n, 1), iconcat([1], s), ifloordiv(n, 2), ilshift(n, 1), imod(n, 2), imul([x], 2), ior({1}, {n}), ipow(a, 2), irshift(n, 1), isub(x.clone(), n), itruediv(a, n), ixor(n, 1)
matmul(x, x.T), imatmul(x @ x.T, x @ x.T)
indexOf(s, 99)
[(iconcat(k, [x]), k) for k in [[1]]], concat((1,), (x,)), countOf([1, a, 1], 1), delitem([1], 4)
""",
    "collections": """
ChainMap({'a': x}, d)['k'], list(ChainMap({'a': x}, {'b': 1})), ChainMap({}, d).new_child({'z': n})['z'], len(ChainMap(d, {}))
Counter('hello').most_common(2), Counter(s)[3], Counter(s + s).total(), Counter(p=n) + Counter(p=1, q=2), Counter(s)[99], sorted(Counter('ab').elements())
OrderedDict(b=x, a=n), [(o.move_to_end('b'), o) for o in [OrderedDict(b=1, a=x)]], OrderedDict(a=1).popitem(last=False), OrderedDict(a=1) == {'a': 1}
UserDict(a=x)['a'], UserDict(d).get('k'), UserList([x, n])[1], UserList(s) + [1], len(UserList(s)), UserString('ab').upper().data
defaultdict(list), [(e['a'].append(x), e['b'], dict(e)) for e in [defaultdict(list)]], defaultdict(lambda: n)['q'], defaultdict(int, d).default_factory
deque(s, maxlen=2), [(q.append(x), q.appendleft(n), q.rotate(1), q.popleft(), list(q)) for q in [deque([1, 2])]], deque([n, 1]).count(1), deque(s).index(1)
[(q.extendleft([1, x]), q.extend(s), q.reverse(), q.pop(), q[0], len(q), q.maxlen) for q in [deque([2], 9)]], deque(s) == deque(s), deque(s).copy()
namedtuple('P', 'x y')(x, n)._asdict(), Point(x, 1)._replace(y=n), Point._make([1, x]), Point._fields, Point(1, n).y, Point(*s[:2]) < (9, 9)
""",
    "copy": """
copy(s), copy(d), copy(bag).value, copy((x, 1)), copy(Point(x, n)), copy(n), copy({1, 2}), copy(plain) is plain
[(c is s, c) for c in [copy(s)]], [(c is k, c) for k in [{1, 2}] for c in [copy(k)]], copy(collections.deque(s, 5)), copy(collections.OrderedDict(a=x)), copy(collections.defaultdict(list, a=[x]))
deepcopy(s), deepcopy(d), deepcopy([x, [x]]), deepcopy(bag).value, deepcopy(Point(x, [n])), deepcopy({1: {2, 3}}), deepcopy(a)
[c[0] is c[1] for c in [deepcopy([s, s])]], deepcopy(collections.deque([x, 1], 4)), deepcopy(collections.defaultdict(int, a=1)), deepcopy(torch.float32), deepcopy(slice(1, n))
breaks: copy(x)
copy(torch.device('cpu')), copy(x.shape), copy(range(n)), copy('t'), copy(Bag), copy(None), copy(frozenset(s)), copy(functools.partial(plain, 1))(n)
""",
    "typing": """
breaks: cast(int, x), cast('Tensor', n), assert_type(n, int), clear_overloads() is None, get_overloads(plain), final(Bag)
get_args(Dict[str, int]), get_origin(List[int]), get_args(Optional[int]), get_origin(Union[int, str]), get_args(Literal['a', 'b'])
get_type_hints(plain), get_type_hints(Bag.method)
is_typeddict(Bag), isinstance(s, List), isinstance(d, Dict), issubclass(OrderedDict, Dict), isinstance(n, Hashable), isinstance(s, Sequence), isinstance(plain, Callable), isinstance(x, Iterable)
breaks: NamedTuple('Q', [('u', int), ('v', int)])(x, n).u, NewType('Id', int)(n), NewType('Id', int).__name__, TypedDict('W', {'u': int})(u=x)
breaks: TypeVar('U').__name__, ParamSpec('V').__name__, TypeVarTuple('Ts').__name__, ForwardRef('int').__forward_arg__
breaks: no_type_check(plain)(1), no_type_check_decorator(lambda f: f)(plain)(n), overload(plain) is plain, runtime_checkable(type('R', (Protocol,), {})).__name__, dataclass_transform()(Bag) is Bag
Deque[int](s), Counter[str]('aab'), ChainMap[str, int](d)['k'], DefaultDict[str, int](int)['q'], FrozenSet[int]([1]), Set[int](s), List[int](s), Dict[str, int](k=n), OrderedDict[str, int](k=x)
""",
    "inspect": """
signature(plain).parameters['k'].default, list(signature(plain).parameters), signature(bag.method).parameters['k'].annotation, 'q' in signature(plain).parameters
signature(plain).bind(1, q=n).arguments, str(signature(plain)), Parameter('p', Parameter.KEYWORD_ONLY).name, [p.kind.name for p in signature(plain).parameters.values()]
breaks: signature(Bag).parameters['value'].default, len(signature(torch.nn.Linear.forward).parameters), signature(lambda u, v=1: u).parameters['v'].default, signature(functools.partial(plain, 1)).parameters['q'].default
getfullargspec(plain).args, getcallargs(plain, 1, k=n)['k'], getfullargspec(bag.method).args
isfunction(plain), ismethod(bag.method), isclass(Bag), isbuiltin(len), ismodule(math), isroutine(plain), callable(bag), isfunction(lambda: x)
isgenerator(stream(2)), isgeneratorfunction(stream), iscoroutinefunction(plain), iscoroutine(n), isawaitable(n), isasyncgen(n), isasyncgenfunction(plain), isabstract(Bag)
isdatadescriptor(Bag.twice), ismethoddescriptor(str.upper), isgetsetdescriptor(type.__dict__['__dict__']), ismemberdescriptor(n), ismethodwrapper(n), iscode(plain.__code__), isframe(n), istraceback(n)
breaks: getmro(Bag), getdoc(plain), cleandoc('  a'), getmodule(plain).__name__, unwrap(entered(plain)) is plain, getattr_static(bag, 'value'), getattr_static(Bag, 'size'), get_annotations(plain)['return']
breaks: [k for k, _ in getmembers(bag) if k[0] != '_'], [k for k, _ in getmembers_static(Bag, isfunction) if k[0] != '_'], [c.name for c in classify_class_attrs(Bag) if c.name[0] != '_']
breaks: currentframe().f_code.co_name is not None, len(stack()) > 1
breaks: getouterframes(currentframe())[0].function != ''
breaks: getsource(plain)[:9], getsourcelines(plain)[0][0], getsourcefile(plain)[-3:], getfile(plain)[-3:], getabsfile(plain)[-3:], getcomments(plain), getmodulename('a/b.py'), formatannotation(int)
getclosurevars(plain).nonlocals, getclasstree([Bag])[0][0]
""",
    "warnings": """
warn('w'), warn('w', DeprecationWarning, stacklevel=2), warn_explicit('w', UserWarning, 'f', 1), warn(UserWarning('w'))
formatwarning('m', UserWarning, 'f.py', 1, 'line')
[filterwarnings('ignore', category=UserWarning), simplefilter('ignore'), resetwarnings()][0]
[(c.__enter__(), simplefilter('ignore'), filterwarnings('error'), resetwarnings(), c.__exit__(None, None, None)) for c in [catch_warnings()]][0][0]
""",
    "logging": """
logger.debug('d %s', n), logger.info('i'), logger.log(10, 'l'), logger.isEnabledFor(10), logger.getEffectiveLevel() >= 0
debug('d'), info('i %d', n)
logger.warning('w %s', x.shape), logger.error('e'), logger.critical('c')
getLogger('tests.capture.library') is logger, getLogger(__name__).name, logger.getChild('z').name, logger.hasHandlers() in (True, False)
getLevelName(10), getLevelNamesMapping()['INFO'], getLoggerClass().__name__, logger.level, logger.name, logger.parent.name, logger.disabled, logger.propagate
breaks: warning('w'), error('e'), critical('c'), exception('x'), fatal('f'), logging.log(10, 'l')
breaks: Formatter('%(message)s').format(makeLogRecord({'msg': 'm'})), Filter('a').filter(makeLogRecord({'name': 'a'})), LogRecord('n', 10, 'p', 1, 'm %s', (n,), None).getMessage()
breaks: LoggerAdapter(logger, {'k': n}).extra, LoggerAdapter(logger, {}).info('hey'), Handler(10).level, NullHandler().level, addLevelName(5, 'TRACE'), Logger('q').name
breaks: logger.setLevel(20), logger.level, logger.addHandler(NullHandler()), logger.removeHandler(logger.handlers[0]), logger.setLevel(0)
""",
}

# What later versions of Python have besides.
SINCE = {
    (3, 12): {
        "math": "sumprod(s, s), sumprod([a, n], [2, a])",
        "itertools": "list(batched([x, 1, n], 2)), list(batched(s, 1)), [len(b) for b in batched(range(7), n)]\nlist(batched(s, 0))",
        "typing": "override(plain) is plain\nbreaks: TypeAliasType('A', int).__name__",
        "inspect": "breaks: getasyncgenlocals, getasyncgenstate, BufferFlags(1), markcoroutinefunction(lambda: 1)()",
        "logging": "getHandlerByName('nobody'), sorted(getHandlerNames()) is not None",
    },
    (3, 13): {
        "math": "fma(a, n, 1.0), fma(2.0, 3.0, a)",
        "copy": "replace(Point(x, 1), y=n), replace(bag)",
        "typing": "is_protocol(Bag), is_protocol(Sized), get_protocol_members(type('M', (Protocol,), {'m': 1})), TypeIs[int], ReadOnly[int]",
        "warnings": "deprecated('old')(lambda v: v + 1)(x)",
    },
}
for version, rows in SINCE.items():
    for name, text in rows.items() if sys.version_info >= version else ():
        ROWS[name] += text + "\n"


def programs():
    """(name, function of ``x, n, a, s, d``, whether it breaks) of every row."""
    for module in MODULES:
        for number, line in enumerate(ROWS[module.__name__].strip().splitlines()):
            expression = line.removeprefix("breaks: ")
            namespace = dict(globals())
            namespace |= {
                name: getattr(module, name)
                for name in names_of(module) | {"pi", "e", "inf", "nan", "tau"}
                if hasattr(module, name)
            }
            source = f"def f(x, n, a, s, d):\n    found = [{expression}]\n    return x + 1, found\n"
            exec(compile(source, __file__, "exec"), namespace)
            yield f"{module.__name__}-{number}", namespace["f"], expression != line


def names_of(module):
    """The functions and classes that a module offers."""
    listed = getattr(module, "__all__", None) or [n for n in dir(module) if n[0] != "_"]
    return {n for n in listed if callable(getattr(module, n)) and getattr(module, n).__module__ not in ("builtins",)}


def called(name, rows):
    return re.search(rf"\b{name}\b", rows) is not None
