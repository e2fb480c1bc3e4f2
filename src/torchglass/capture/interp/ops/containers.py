"""Building and unpacking containers."""

from __future__ import annotations

import sys

from ....bytecode.objects import namesake
from ....bytecode.operators import UNARY, unpacked
from ...errors import Unsupported, UserError
from ...protocol import NotConstant
from ...values.constant import ConstantV
from ...values.containers import ListV, SetV, SliceV, TupleV
from ...values.dicts import DictV
from ...values.instance import InstanceV
from .registry import BEFORE_312, SINCE_312, handler


@handler("BUILD_TUPLE")
def build_tuple(m, f, i):
    f.push(TupleV(f.pop_n(i.arg)))


@handler("BUILD_LIST")
def build_list(m, f, i):
    f.push(ListV(f.pop_n(i.arg)))


@handler("BUILD_SET")
def build_set(m, f, i):
    f.push(SetV([m.settled_key(v) for v in f.pop_n(i.arg)]))


@handler("BUILD_SLICE")
def build_slice(m, f, i):
    parts = f.pop_n(i.arg)
    f.push(SliceV(parts if i.arg == 3 else [*parts, ConstantV(None)]))


@handler("BUILD_MAP")
def build_map(m, f, i):
    flat = f.pop_n(2 * i.arg)
    f.push(DictV.of([(m.settled_key(k), v) for k, v in zip(flat[::2], flat[1::2])]))


@handler("BUILD_CONST_KEY_MAP")
def build_const_key_map(m, f, i):
    keys = m.listed(f.pop())
    f.push(DictV.of(list(zip(keys, f.pop_n(i.arg)))))


def _target(m, f, i):
    """The container being built below on the stack: behind a graph break it is an existing object."""
    target = f.stack[-i.arg]
    m.mutate(target)
    return target


@handler("LIST_APPEND")
def list_append(m, f, i):
    value = f.pop()
    f.stack[-i.arg].grow(m, [value])


@handler("SET_ADD")
def set_add(m, f, i):
    value = m.settled_key(f.pop())
    _target(m, f, i).put(value)


@handler("MAP_ADD")
def map_add(m, f, i):
    value, key = f.pop(), m.settled_key(f.pop())
    _target(m, f, i).put(key, value)


@handler("LIST_EXTEND")
def list_extend(m, f, i):
    value = m.forced(f.pop())
    if not is_iterable(value):
        m.throw_as(lambda given: [*given], namesake(value.python_type()))
    f.stack[-i.arg].grow(m, m.listed(value))


@handler("SET_UPDATE")
def set_update(m, f, i):
    values = [m.settled_key(v) for v in m.listed(f.pop())]
    target = _target(m, f, i)
    for value in values:
        target.put(value)


def _pairs_for(m, mapping, user):
    """The pairs of a mapping that ``user`` unpacks with ``**``, which words the error of what is none."""
    try:
        return mapping.mapping_pairs(m)
    except UserError as error:
        if not issubclass(error.value.python_type(), AttributeError):
            raise
        m.throw_as(user, namesake(mapping.python_type()))


@handler("DICT_UPDATE")
def dict_update(m, f, i):
    pairs = _pairs_for(m, f.pop(), lambda stand_in: {**stand_in})
    target = _target(m, f, i)
    for key, value in pairs:
        target.put(m.settled_key(key), value)


def called_like(m, callee):
    """A function that errors name as they name ``callee``."""

    def called(*args, **kwargs):
        raise AssertionError

    try:
        called.__qualname__, called.__module__ = (
            m.get_attr(callee, name).as_constant() for name in ("__qualname__", "__module__")
        )
    except (UserError, NotConstant):
        raise Unsupported(f"calling {callee.a()} with these arguments") from None
    return called


def _calling_with_both(called, names):
    called(**names, **names)


@handler("DICT_MERGE")
def dict_merge(m, f, i):
    mapping, callee = f.pop(), f.stack[-i.arg - 2 - (sys.version_info >= (3, 13))]
    pairs = _pairs_for(m, mapping, lambda stand_in: called_like(m, callee)(**stand_in))
    target = _target(m, f, i)
    for key, value in pairs:
        if target.contains(m, key):
            m.throw_as(_calling_with_both, called_like(m, callee), {key.as_constant(): None})
        target.put(key, value)


@handler("LIST_TO_TUPLE", versions=BEFORE_312)
def list_to_tuple(m, f, i):
    f.push(TupleV(list(f.pop().items)))


def is_iterable(value):
    cls = value.python_type()
    return hasattr(cls, "__iter__") or hasattr(cls, "__getitem__")


def _unpacked(m, value, targets):
    """The items of a value that is taken apart into ``targets``, where it fits."""
    if isinstance(value, (ConstantV, InstanceV)) and not is_iterable(value):
        m.throw_as(exec, f"{targets} = value", {"value": namesake(value.python_type())})
    values = m.listed(value)
    wanted, starred = targets.count("_"), "*" in targets
    if len(values) < wanted - starred or (len(values) > wanted and not starred):
        m.throw_as(exec, f"{targets} = value", {"value": [None] * len(values)})
    return values


@handler("UNPACK_SEQUENCE", "UNPACK_EX")
def unpack(m, f, i):
    count, starred = unpacked(i.opname, i.arg)
    targets = ", ".join("*_" if n == starred else "_" for n in range(count))
    values = _unpacked(m, f.pop(), f"[{targets}]")
    if starred is not None:
        stop = starred + 1 + len(values) - count
        values = [*values[:starred], ListV(values[starred:stop]), *values[stop:]]
    f.stack.extend(reversed(values))


@handler("CALL_INTRINSIC_1", versions=SINCE_312)
def call_intrinsic_1(m, f, i):
    name = {3: "stopiteration_error", 5: "unary_positive", 6: "list_to_tuple"}.get(i.arg)
    if name == "list_to_tuple":
        list_to_tuple(m, f, i)
    elif name == "unary_positive":
        f.push(m.unary(UNARY["UNARY_POSITIVE"].function, f.pop()))
    elif name == "stopiteration_error":
        pass
    else:
        raise Unsupported(f"the intrinsic {i.arg}")


# --- match statements -------------------------------------------------------------------------------------------------
@handler("GET_LEN")
def get_len(m, f, i):
    f.push(ConstantV(f.stack[-1].length(m)))


@handler("MATCH_SEQUENCE", "MATCH_MAPPING")
def match_kind(m, f, i):
    flag = 1 << 5 if i.opname == "MATCH_SEQUENCE" else 1 << 6  # Py_TPFLAGS_SEQUENCE, Py_TPFLAGS_MAPPING
    f.push(ConstantV(bool(f.stack[-1].python_type().__flags__ & flag)))


@handler("MATCH_KEYS")
def match_keys(m, f, i):
    keys, subject = m.listed(f.stack[-1]), f.stack[-2]
    for n, key in enumerate(keys):
        if any(m.equal(key, other) for other in keys[:n]):
            m.throw(ValueError, f"mapping pattern checks duplicate key ({key.as_constant()!r})")
    if all(subject.contains(m, m.settled_key(k)) for k in keys):
        f.push(TupleV([subject.get_item(m, k) for k in keys]))
    else:
        f.push(ConstantV(None))


@handler("MATCH_CLASS")
def match_class(m, f, i):
    names, cls, subject = f.pop(), f.pop(), f.pop()
    f.push(m.call(m.polyfill("match_class"), [subject, cls, ConstantV(i.arg), names], {}))
