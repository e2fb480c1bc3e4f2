"""Exception groups and ``except*``: what CPython's C code does with them, on exceptions that were raised inside.

    CHECK_EG_MATCH        rest, match = split(rest, classes)      # a naked exception that matches is put into a group
    PREP_RERAISE_STAR     what is raised in the end: what clauses raised, and what they let through, as it was nested

What a clause lets through, or raises again with a bare ``raise``, is known by its traceback: it has the one that the
group had when it was caught. Here ``ExceptionV.trace`` stands for that, an object that changes whenever CPython would
add to the traceback.
"""

from __future__ import annotations

from ..errors import Unsupported
from ..guarding.class_guards import is_subclass
from ..polyfills import exceptions as polyfills
from ..protocol import Frame, HandledV, Machine, Value
from ..values.constant import NONE, ConstantV
from ..values.containers import ListV, SequenceV, TupleV
from ..values.instance import ExceptionV
from .registry import handles, method

HINT = "move the statement into a function of its own"


def make(m: Machine, cls: type[BaseExceptionGroup], args: list[Value]) -> ExceptionV:
    """``BaseExceptionGroup.__new__(cls, message, exceptions)``."""
    if len(args) != 2 or not args[0].is_constant() or not isinstance(args[1], SequenceV):
        raise Unsupported("an exception group made of other than a text and a list")
    items = m.listed(args[1])
    # CPython's own checks, on objects that stand for the exceptions
    known = [_stand_in(item) for item in items]
    actual = type(m.real(BaseExceptionGroup.__new__, cls, args[0].as_constant(), known))
    made = ExceptionV(actual, list(args))
    made.group = args[0], TupleV(items)
    return made


def _stand_in(value: Value) -> object:
    if not isinstance(value, ExceptionV):
        return value
    return Exception() if issubclass(value.cls, Exception) else BaseException()


# --- the two instructions ---------------------------------------------------------------------------------------------
def match(m: Machine, f: Frame, error: Value, wanted: Value) -> tuple[Value, Value]:
    """What is left of ``error`` and what of it is of the classes ``wanted``; that is now being handled."""
    for one in wanted.all(m) if isinstance(wanted, TupleV) else [wanted]:
        cls = one.as_constant() if one.is_constant() else None
        if not (isinstance(cls, type) and issubclass(cls, BaseException)):
            m.throw(TypeError, "catching classes that do not inherit from BaseException is not allowed")
        if issubclass(cls, BaseExceptionGroup):
            m.throw(TypeError, "catching ExceptionGroup with except* is not allowed. Use except instead.")
    if not isinstance(error, ExceptionV):
        return NONE, NONE
    if error.real is not None:
        raise Unsupported("`except*` on an exception that was not raised in the graph", HINT)
    handled = next(slot for slot in reversed(f.stack) if isinstance(slot, HandledV))
    handled.star = True
    if not is_subclass(m, error.cls, wanted) and error.group is None:
        return error, NONE
    if error.group is None:
        found: Value = make(m, ExceptionGroup, [ConstantV(""), TupleV([error])])
        rest: Value = NONE
    else:
        found, rest = m.listed(m.call(m.polyfill("split_group"), [error, wanted], {}))
    if isinstance(found, ExceptionV):
        handled.error = found
    return rest, found


def prepare(m: Machine, f: Frame, original: Value, raised: Value) -> Value:
    """The exception that the statement raises in the end, or None: ``raised`` holds what each clause raised, and last
    what none caught.
    """
    errors = [e for e in m.listed(raised) if isinstance(e, ExceptionV)]
    assert isinstance(original, ExceptionV)
    if not errors or original.group is None:
        return errors[0] if errors else NONE
    through = [e for e in errors if _same_place(e, original)]
    anew = [e for e in errors if e not in through]
    left = m.call(m.polyfill("projected"), [original, TupleV(list(through))], {}) if through else NONE
    result = left
    if anew:
        parts = [*anew, *([left] if isinstance(left, ExceptionV) else [])]
        result = parts[0]
        if len(parts) > 1:
            result = make(m, BaseExceptionGroup, [ConstantV(""), ListV(list(parts))])
            result.slots["__context__"] = NONE
    # where it is raised in the end, Python begins where the first of it was raised
    if id(original) in f.raised:
        f.raised[id(result)] = result, f.raised[id(original)][1]
    return result


def _same_place(error: ExceptionV, original: ExceptionV) -> bool:
    links = ("__cause__", "__context__")
    return error.trace is original.trace and all(_link(error, name) is _link(original, name) for name in links)


def _link(error: ExceptionV, name: str) -> Value | None:
    found = error.slots.get(name)
    return None if isinstance(found, ConstantV) else found


# --- methods ----------------------------------------------------------------------------------------------------------
@method(BaseExceptionGroup)
def derive(m, self, exceptions):
    return m.call(m.wrap(BaseExceptionGroup), [m.get_attr(self, "message"), exceptions], {})


@method(BaseExceptionGroup)
def split(m, self, condition):
    return m.call(m.polyfill("split_group"), [self, condition], {})


@method(BaseExceptionGroup)
def subgroup(m, self, condition):
    return m.call(m.polyfill("subgroup"), [self, condition], {})


@method(BaseExceptionGroup, name="__str__")
def group_str(m, self):
    count = len(m.listed(m.get_attr(self, "exceptions")))
    return ConstantV(f"{m.get_attr(self, 'message').as_constant()} ({count} sub-exception{'s' * (count != 1)})")


@handles(polyfills.copy_traces)
def copy_traces(m, args, kwargs):
    """What a part of a group takes over from it, beside its text."""
    made, group = args
    if not isinstance(made, ExceptionV) or not isinstance(group, ExceptionV) or group.real is not None:
        raise Unsupported("splitting an exception group that was not made in the graph", HINT)
    made.trace = group.trace
    for name in ("__context__", "__cause__"):
        made.slots[name] = group.slots.get(name, NONE)
    made.slots["__suppress_context__"] = ConstantV(True)  # which setting a cause does, even None
    notes = group.attrs.lookup(m, "__notes__") if group.attrs is not None else None
    if notes is not None and made.attrs is not None:
        made.attrs.set_item(m, ConstantV("__notes__"), ListV(m.listed(notes)))
    return NONE
