"""Building and unpacking containers."""

from __future__ import annotations

from ....bytecode.operators import UNARY, unpacked
from ...errors import Unsupported
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
    kind = value.python_type()
    if not hasattr(kind, "__iter__") and not hasattr(kind, "__getitem__"):
        m.throw(TypeError, f"Value after * must be an iterable, not {kind.__name__}")
    f.stack[-i.arg].grow(m, m.listed(value))


@handler("SET_UPDATE")
def set_update(m, f, i):
    values = [m.settled_key(v) for v in m.listed(f.pop())]
    target = _target(m, f, i)
    for value in values:
        target.put(value)


@handler("DICT_UPDATE")
def dict_update(m, f, i):
    pairs = m.mapping_pairs(f.pop())
    target = _target(m, f, i)
    for key, value in pairs:
        target.put(m.settled_key(key), value)


@handler("DICT_MERGE")
def dict_merge(m, f, i):
    pairs = m.mapping_pairs(f.pop())
    target = _target(m, f, i)
    for key, value in pairs:
        if target.contains(m, key):
            m.throw(TypeError, f"got multiple values for keyword argument '{key.as_constant()}'")
        target.put(key, value)


@handler("LIST_TO_TUPLE", versions=BEFORE_312)
def list_to_tuple(m, f, i):
    f.push(TupleV(list(f.pop().items)))


def _unpacked(m, value):
    cls = value.python_type()
    iterable = hasattr(cls, "__iter__") or hasattr(cls, "__getitem__")
    if isinstance(value, (ConstantV, InstanceV)) and not iterable:
        m.throw(TypeError, f"cannot unpack non-iterable {cls.__name__} object")
    return m.listed(value)


@handler("UNPACK_SEQUENCE", "UNPACK_EX")
def unpack(m, f, i):
    count, starred = unpacked(i.opname, i.arg)
    values = _unpacked(m, f.pop())
    more = len(values) - count
    if more < (0 if starred is None else -1):
        wanted = str(count) if starred is None else f"at least {count - 1}"
        m.throw(ValueError, f"not enough values to unpack (expected {wanted}, got {len(values)})")
    if starred is not None:
        stop = starred + 1 + more
        values = [*values[:starred], ListV(values[starred:stop]), *values[stop:]]
    elif more > 0:
        m.throw(ValueError, f"too many values to unpack (expected {count})")
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
    if all(m.contains(subject, k) for k in keys):
        f.push(TupleV([subject.get_item(m, k) for k in keys]))
    else:
        f.push(ConstantV(None))


@handler("MATCH_CLASS")
def match_class(m, f, i):
    names, cls, subject = f.pop(), f.pop(), f.pop()
    f.push(m.call(m.polyfill("match_class"), [subject, cls, ConstantV(i.arg), names], {}))
