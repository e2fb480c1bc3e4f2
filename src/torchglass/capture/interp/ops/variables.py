"""Locals, cells, globals, names, attributes, items."""

from __future__ import annotations

import sys

from ...errors import Unsupported
from ...meanings import generic_aliases as typed
from ...protocol import NULL, Lazy, Value, to_call
from ...values.constant import ConstantV
from ...values.containers import CellV, SliceV
from ...values.dicts import DictV
from ...values.functions import FunctionV
from ...values.methods import MethodV
from .. import globals as namespaces
from .registry import BEFORE_312, SINCE_312, SINCE_313, handler


def _load_local(m, f, name):
    value = f.locals.get(name)
    if value is None and name in f.cells:
        return f.cells[name]  # to be handed to an inner function: what LOAD_CLOSURE said before 3.13
    if value is None:
        m.throw(UnboundLocalError, f"cannot access local variable '{name}' where it is not associated with a value")
    if isinstance(value, Lazy):
        value = f.locals[name] = m.forced(value)
    return value


@handler("LOAD_FAST")
def load_fast(m, f, i):
    f.push(_load_local(m, f, i.argval))


@handler("LOAD_FAST_CHECK", versions=SINCE_312)
def load_fast_check(m, f, i):
    f.push(_load_local(m, f, i.argval))


@handler("LOAD_FAST_AND_CLEAR", versions=SINCE_312)
def load_fast_and_clear(m, f, i):
    # In a comprehension the name is another variable; where inner functions share the outer one, its cell is kept.
    name = i.argval
    kept = f.cells.pop(name, None) if name in f.code.co_cellvars else None
    value = f.locals.pop(name, None) if kept is None else kept
    f.push(NULL if value is None else value)


@handler("STORE_FAST")
def store_fast(m, f, i):
    name, value = i.argval, f.pop()
    if value is NULL:  # what LOAD_FAST_AND_CLEAR found
        f.locals.pop(name, None)
    elif isinstance(value, CellV) and name in f.code.co_cellvars:
        f.cells[name] = value  # a resume function takes over a cell that inner functions share
    else:
        f.locals[name] = value


@handler("DELETE_FAST")
def delete_fast(m, f, i):
    if f.locals.pop(i.argval, None) is None:
        _unbound(m, f, i.argval)


def _unbound(m, f, name):
    """Raise what reading or deleting a variable without a value raises."""
    if name in f.code.co_freevars:
        text = f"cannot access free variable {name!r} where it is not associated with a value in enclosing scope"
        m.raise_real(NameError(text, name=name))
    m.throw(UnboundLocalError, f"cannot access local variable '{name}' where it is not associated with a value")


# --- cells ------------------------------------------------------------------------------------------------------------
@handler("MAKE_CELL")
def make_cell(m, f, i):
    f.cells[i.argval] = CellV(f.locals.pop(i.argval, None))


@handler("LOAD_CLOSURE", versions=((3, 11), (3, 13)))
def load_closure(m, f, i):
    f.push(f.cells[i.argval])


@handler("LOAD_DEREF")
def load_deref(m, f, i):
    value = f.cells[i.argval].get(m)
    if value is None:
        _unbound(m, f, i.argval)
    f.push(m.forced(value))


@handler("STORE_DEREF")
def store_deref(m, f, i):
    f.cells[i.argval].set(m, f.pop())


@handler("DELETE_DEREF")
def delete_deref(m, f, i):
    if f.cells[i.argval].get(m) is None:
        _unbound(m, f, i.argval)
    f.cells[i.argval].set(m, None)


@handler("LOAD_CLASSDEREF", versions=BEFORE_312)
def load_classderef(m, f, i):
    if i.argval in f.locals:
        f.push(_load_local(m, f, i.argval))
    else:
        load_deref(m, f, i)


# --- globals ----------------------------------------------------------------------------------------------------------
@handler("LOAD_GLOBAL")
def load_global(m, f, i):
    value = namespaces.load_global(m, f, i.argval)
    f.stack.extend(to_call(value) if i.arg & 1 else [value])


@handler("LOAD_NAME")
def load_name(m, f, i):
    f.push(_load_local(m, f, i.argval) if i.argval in f.locals else namespaces.load_global(m, f, i.argval))


@handler("STORE_NAME")
def store_name(m, f, i):
    f.locals[i.argval] = f.pop()


@handler("STORE_GLOBAL")
def store_global(m, f, i):
    namespaces.store_global(m, f, i.argval, f.pop())


@handler("DELETE_NAME")
def delete_name(m, f, i):
    if f.locals.pop(i.argval, None) is None:
        m.raise_real(NameError(f"name '{i.argval}' is not defined", name=i.argval))


@handler("SETUP_ANNOTATIONS")
def setup_annotations(m, f, i):
    f.locals.setdefault("__annotations__", DictV())


class NamespaceV(Value):
    """What LOAD_LOCALS gives in a class body: the names of its frame."""

    cls = dict

    def __init__(self, frame):
        self.frame = frame


@handler("LOAD_LOCALS", versions=SINCE_312)
def load_locals(m, f, i):
    f.push(NamespaceV(f))


def _namespace(f, i):
    namespace = f.pop()
    if not isinstance(namespace, NamespaceV):
        raise Unsupported(f"the bytecode instruction {i.opname}")
    return namespace.frame


@handler("LOAD_FROM_DICT_OR_DEREF", versions=SINCE_312)
def load_from_dict_or_deref(m, f, i):
    body = _namespace(f, i)
    if i.argval in body.locals:
        f.push(_load_local(m, body, i.argval))
    else:
        load_deref(m, f, i)


@handler("LOAD_FROM_DICT_OR_GLOBALS", versions=SINCE_312)
def load_from_dict_or_globals(m, f, i):
    body = _namespace(f, i)
    f.push(_load_local(m, body, i.argval) if i.argval in body.locals else namespaces.load_global(m, f, i.argval))


@handler("DELETE_GLOBAL")
def delete_global(m, f, i):
    raise Unsupported(f"deleting the global name `{i.argval}`")


# --- attributes -------------------------------------------------------------------------------------------------------
def _push_method(m, f, name):
    """LOAD_METHOD: a bound method goes onto the stack as function and self, anything else with a NULL."""
    found = m.get_attr(f.pop(), name)
    f.stack.extend([found.function, found.owner] if isinstance(found, MethodV) else to_call(found))


@handler("LOAD_METHOD", versions=BEFORE_312)
def load_method(m, f, i):
    _push_method(m, f, i.argval)


@handler("LOAD_ATTR")
def load_attr(m, f, i):
    if sys.version_info >= (3, 12) and i.arg & 1:
        _push_method(m, f, i.argval)
    else:
        f.push(m.get_attr(f.pop(), i.argval))


@handler("STORE_ATTR")
def store_attr(m, f, i):
    owner, value = f.pop(), f.pop()
    owner.set_attr(m, i.argval, value)


@handler("DELETE_ATTR")
def delete_attr(m, f, i):
    f.pop().del_attr(m, i.argval)


@handler("LOAD_SUPER_ATTR", versions=SINCE_312)
def load_super_attr(m, f, i):
    owner, cls, super_class = f.pop(), f.pop(), f.pop()
    f.push(m.call(super_class, [cls, owner] if i.arg & 2 else [], {}))
    if i.arg & 1:
        _push_method(m, f, i.argval)
    else:
        f.push(m.get_attr(f.pop(), i.argval))


# --- items ------------------------------------------------------------------------------------------------------------
@handler("BINARY_SUBSCR")
def binary_subscr(m, f, i):
    key, owner = f.pop(), f.pop()
    if typed.is_generic(owner):
        f.push(typed.item(m, owner, key))
    else:
        f.push(m.forced(owner.get_item(m, m.settled_key(key))))


@handler("STORE_SUBSCR")
def store_subscr(m, f, i):
    key, owner, value = f.pop(), f.pop(), f.pop()
    owner.set_item(m, m.settled_key(key), value)


@handler("DELETE_SUBSCR")
def delete_subscr(m, f, i):
    key, owner = f.pop(), f.pop()
    owner.del_item(m, m.settled_key(key))


@handler("BINARY_SLICE", versions=SINCE_312)
def binary_slice(m, f, i):
    stop, start, owner = f.pop(), f.pop(), f.pop()
    f.push(m.forced(owner.get_item(m, SliceV([start, stop, ConstantV(None)]))))


@handler("STORE_SLICE", versions=SINCE_312)
def store_slice(m, f, i):
    stop, start, owner, value = f.pop(), f.pop(), f.pop(), f.pop()
    owner.set_item(m, SliceV([start, stop, ConstantV(None)]), value)


# --- functions --------------------------------------------------------------------------------------------------------
def _pairs(m, flat):
    """Annotations as the stack has them: names and values in turn."""
    items = m.listed(flat)
    return DictV.of(list(zip(items[::2], items[1::2])))


@handler("MAKE_FUNCTION", versions=((3, 11), (3, 13)))
def make_function(m, f, i):
    code = f.pop().as_constant()
    closure = m.listed(f.pop()) if i.arg & 8 else []
    annotations = _pairs(m, f.pop()) if i.arg & 4 else None
    kwdefaults = {k.as_constant(): v for k, v in f.pop().pairs(m)} if i.arg & 2 else {}
    defaults = m.listed(f.pop()) if i.arg & 1 else []
    f.push(FunctionV(code, f.namespace, f.module, closure, defaults, kwdefaults, annotations))


@handler("MAKE_FUNCTION", versions=SINCE_313)
def make_function_13(m, f, i):
    f.push(FunctionV(f.pop().as_constant(), f.namespace, f.module, []))


@handler("SET_FUNCTION_ATTRIBUTE", versions=SINCE_313)
def set_function_attribute(m, f, i):
    function, attribute = f.pop(), f.pop()
    if i.arg == 8:
        function.closure = m.listed(attribute)
    elif i.arg == 2:
        function.kwdefaults = {k.as_constant(): v for k, v in attribute.pairs(m)}
    elif i.arg == 1:
        function.defaults = m.listed(attribute)
    elif i.arg == 4:
        function.annotations = _pairs(m, attribute)
    f.push(function)


@handler("LOAD_BUILD_CLASS")
def load_build_class(m, f, i):
    import builtins

    f.push(m.wrap(builtins.__build_class__))


@handler("IMPORT_NAME")
def import_name(m, f, i):
    names, level = f.pop(), f.pop()
    f.push(namespaces.import_name(m, f, i.argval, names.as_constant(), level.as_constant()))


@handler("IMPORT_FROM")
def import_from(m, f, i):
    f.push(namespaces.import_from(m, f.stack[-1], i.argval))
