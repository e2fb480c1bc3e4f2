"""What the program's errors say: CPython itself is asked, so the words are those of the version that runs.

Each line is run on ``a``, which can do nothing, ``b`` of a subclass of list, ``c`` with a slot and an attribute ``x``,
and ``n``, whose ``__lt__`` is None.
"""

import linecache

import pytest
import torch

import torchglass as tg


class A:
    pass


class B(list):
    pass


class C:
    __slots__ = ("a",)
    x = 1


class N:
    __lt__ = None


class Given:
    """Gives from its special methods what they must not give."""

    def __repr__(self):
        return 1

    __str__ = __format__ = __index__ = __int__ = __float__ = __complex__ = __bool__ = __hash__ = __iter__ = __repr__


class Negative:
    def __len__(self):
        return -1


class Closed:
    __iter__ = __contains__ = __len__ = __reversed__ = None

    def __getitem__(self, index):
        return index


class Made:
    def __init__(self):
        return 3


LINES = """
a+1
1-a
a*2.5
a<1
't'+a
[1]+a
a+[1]
(1,)<a
{}|a
{1}&a
a<a
-a
abs(a)
~a
a%2
2**a
a//c
[1]*a
'a'*a
a*[1]
n<1
1>n
a@a
a+None
b+1
b+a
a<'s'
a>=b'x'
a|1
len(a)
a[0]
iter(a)
next(a)
3 in a
a()
reversed(a)
[*a]
(lambda *p: p)(*a)
(lambda **p: p)(**a)
[1][a]
[1]['x']
(1,)[None]
[1,2][5]
(1,)[a]
{**a}
{**5}
len(**{"a":1}, **{"a":2})
[1]["a":]
super(B, a)
zip([1],[2,3],strict=True).__next__(); list(zip([1],[2,3],strict=True))
(v for v in [1]).throw(5)
from collections import OrderedDict; OrderedDict([(1,2), 5])
object.__new__(A, 3)
A(3)
object.__init__(a, 3)
type(a, b)
from collections import deque; deque([1]).remove(5)
[].pop()
p, q = {}, 1, 2
p, q = a
p, q = [x]
p, q = [x,x,x]
p, q, *r = [x]
c.zz = 1
c.x = 1
a[1] = 2
del a[1]
with a: pass
raise a
raise ValueError from a
a += 1
u += 1
(lambda v: v)(**{'v': 1}, **{'v': 2})
del c.a
c.a
a.nothing
for i in a: pass
raise
ValueError().__cause__ = 3
dict([(1,2),a])
dict([(1,2),(1,2,3)])
for i in 5: pass
del a.nothing
del c.zz
str(Given())
repr(Given())
f"{Given()}"
float(Given())
complex(Given())
bool(Given())
hash(Given())
[1][Given()]
[1] * Given()
list(Given())
[*Given()]
len(Negative())
bool(Negative())
iter(Closed())
1 in Closed()
len(Closed())
reversed(Closed())
Made()
[1].pop(a)
[1].insert(a, 1)
(1, 2).index(3)
[1].remove(A)
[1, 2][1:a]
dict([1])
dict([(1, 2, 3)])
{}.popitem()
set().pop()
{}[A]
(lambda *, k: k)(1)
len(**{"a": 1}, **{"a": 2})
(lambda **k: k)(**{1: 2})
min()
min(1)
min([], key=len)
sum([1], "a")
sum(["a"], "")
next([])
callable()
vars(1, 2)
object(1)
iter(1, 2, 3)
""".strip().splitlines()
NAMES = {
    "A": A,
    "B": B,
    "C": C,
    "N": N,
    "Given": Given,
    "Negative": Negative,
    "Closed": Closed,
    "Made": Made,
    "super": super,
}


def run_by(line):
    """A function that runs the line and says what it raised."""
    source = f"""
def program(x):
    a, b, c, n = A(), B(), C(), N()
    try:
        {line}
    except Exception as error:
        of = type(getattr(error, "obj", None)).__name__
        return x + 1, type(error).__name__, error.args, getattr(error, "name", None), of
    return x
"""
    file = f"<words of {line}>"
    linecache.cache[file] = len(source), None, source.splitlines(True), file
    scope = dict(NAMES, __name__=__name__)
    exec(compile(source, file, "exec"), scope)
    return scope["program"]


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("line", LINES)
def test_says_what_python_says(line):
    program, x = run_by(line), torch.ones(2)
    assert str(tg.compile(program, fullgraph=True, backend="eager")(x)) == str(program(x))
