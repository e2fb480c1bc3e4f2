"""Methods of what every object is: object, exceptions, functions, generators, types."""

from __future__ import annotations

import weakref
from types import FunctionType, GeneratorType, SimpleNamespace

from ....bytecode.objects import namesake
from ....records.sources import Referent
from ...errors import Unsupported, UserError
from ...values.attributes import refuse_access
from ...values.binding import rely_on_bases, throw_missing
from ...values.constant import NONE, ConstantV, is_none
from ...values.containers import ListV, TupleV
from ...values.dicts import DictV
from ...values.exceptions import exception_from
from ...values.instance import ExceptionV, InstanceV
from ...values.iterators import GeneratorV
from ...values.known import KnownV
from ...values.methods import MethodV, call_descriptor
from ..builtins import pretended_class
from ..registry import method


# --- object -----------------------------------------------------------------------------------------------------------
@method(object, name="__setattr__")
def object_setattr(m, self, name, value):
    if isinstance(self, InstanceV):
        self.store_attr(m, name.as_constant(), value)
    elif issubclass(self.python_type(), type):
        raise Unsupported("object.__setattr__ of a class")
    else:
        self.set_attr(m, name.as_constant(), value)
    return NONE


@method(object, name="__delattr__")
def object_delattr(m, self, name):
    if not isinstance(self, InstanceV):
        raise Unsupported(f"object.__delattr__ of {self.a()}")
    self.discard_attr(m, name.as_constant())
    return NONE


@method(object, name="__getattribute__")
def object_getattribute(m, self, name):
    if isinstance(self, InstanceV):
        value = self.find_attr(m, name.as_constant())
        if value is None:
            throw_missing(m, self, name.as_constant())
        return value
    return m.get_attr(self, name.as_constant())


@method(object, name="__init__")
def object_init(m, self, /, *args, **kwargs):
    cls = self.python_type()
    own = m.class_lookup(cls, "__init__") is not object.__init__
    if (args or kwargs) and (own or m.class_lookup(cls, "__new__") is object.__new__):
        m.throw_as(object.__init__, namesake(cls, **({"__init__": None} if own else {})), None)
    return NONE


@method(SimpleNamespace, name="__init__")
def namespace_init(m, self, /, **kwargs):
    for name, value in kwargs.items():
        self.store_attr(m, name, value)
    return NONE


@method(object, name="__eq__")
def object_eq(m, self, other):
    return ConstantV(True if m.identical(self, other) else NotImplemented)


@method(object, name="__ne__")
def object_ne(m, self, other):
    return ConstantV(not m.equal(self, other))


@method(object, name="__hash__")
def object_hash(m, self):
    from ..builtins import id_

    return id_(m, [self], {})


@method(object, name="__repr__")
def object_repr(m, self):
    raise Unsupported(f"repr() of {self.a()}")


@method(object, name="__str__")
def object_str(m, self):
    return m.call(m.wrap(repr), [self], {})


@method(object, name="__init_subclass__")
def object_init_subclass(m, self, /, **kwargs):
    return NONE


@method(BaseException, name="__init__")
def exception_init(m, self, /, *args, **kwargs):
    if isinstance(self, ExceptionV):
        self.args, self.initialized = list(args), (list(args), kwargs)
        if self.builtin_class().__init__ is not BaseException.__init__ and _are_constant(m, [*args, *kwargs.values()]):
            twin = self.twin(m)  # raises where it does not take these
            self.args = self.args[: len(twin.args)]  # OSError keeps file names elsewhere
            if self.cls is OSError:
                self.cls = type(twin)
    return NONE


def _are_constant(m, values):
    return all(m.settle(value).is_constant() for value in values)


@method(BaseException)
def add_note(m, self, note):
    if not issubclass(note.python_type(), str):
        m.throw_as(Exception().add_note, namesake(note.python_type()))
    notes = self.attrs.lookup(m, "__notes__")
    if notes is None:
        notes = ListV([])
        self.attrs.set_item(m, ConstantV("__notes__"), notes)
    if not isinstance(notes, ListV):
        m.throw(TypeError, "Cannot add note: __notes__ is not a list")
    return call_descriptor(m, list.append, [notes, note], {})


@method(BaseException, name="__reduce__")
def exception_reduce(m, self):
    """How to make another one: its class, arguments and attributes; some add fields, or change the arguments."""
    arguments, pairs = TupleV(self.arguments(m)), self.attrs.pairs(m)
    if self.builtin_class().__reduce__ is not BaseException.__reduce__:
        if self.real is not None:
            raise Unsupported(f"what pickling makes of {self.a()}")
        twin = self.twin(m)
        _, values, *state = m.real(twin.__reduce__)
        arguments = arguments if values == twin.args else m.wrap_result(values)
        pairs = [*((ConstantV(name), m.wrap_result(value)) for name, value in (state or [{}])[0].items()), *pairs]
    return TupleV([m.wrap(self.cls), arguments, *([DictV.of(pairs)] if pairs else [])])


@method(BaseException, name="__setstate__")
def exception_setstate(m, self, state):
    for name, value in state.mapping_pairs(m):
        self.set_attr(m, name.as_constant(), value)
    return NONE


@method(BaseException)
def with_traceback(m, self, traceback):
    m.mutate(self)
    self.slots["__traceback__"] = traceback
    return self


# Their text is that of their arguments, though they have fields of their own.
SHOW_ARGUMENTS = (AttributeError, NameError, KeyError)


def _plain_text(error):
    return error.builtin_class().__str__ is BaseException.__str__


@method(BaseException, name="__str__")
def exception_str(m, self):
    if not issubclass(self.builtin_class(), SHOW_ARGUMENTS) and self.real is None and not _plain_text(self):
        return ConstantV(m.real(str, self.twin(m)))
    args = self.arguments(m)
    if len(args) == 1:
        return m.call(m.wrap(repr if issubclass(self.cls, KeyError) else str), args, {})
    return m.fold(str, [TupleV(args)], {}) if args else ConstantV("")


@method(BaseException, name="__repr__")
def exception_repr(m, self):
    parts = [m.call(m.wrap(repr), [a], {}).as_constant() for a in self.arguments(m)]
    return ConstantV(f"{self.cls.__name__}({', '.join(parts)})")


@method(weakref.ref, name="__call__")
def referent(m, self):
    """What a weak reference (WeakValueDictionary's, with a key) refers to."""
    return m.wrap(self.real(), Referent(self.source) if self.source else None)


# --- functions, generators, types -------------------------------------------------------------------------------------
@method(FunctionType, name="__get__")
def function_get(m, self, owner, cls=NONE):
    return self if is_none(owner) else MethodV(self, owner)


@method(property, name="__set__")
def property_set(m, self, owner, value):
    if self.as_constant().fset is None:
        refuse_access(m, property.__set__, self.as_constant(), owner, None)
    m.call(m.wrap(self.as_constant().fset), [owner, value], {})
    return NONE


@method(property, name="__get__")
def property_get(m, self, owner, cls=NONE):
    if is_none(owner):
        return self
    if self.as_constant().fget is None:
        refuse_access(m, property.__get__, self.as_constant(), owner)
    return m.call(m.wrap(self.as_constant().fget), [owner], {})


@method(property, name="__delete__")
def property_delete(m, self, owner):
    if self.as_constant().fdel is None:
        refuse_access(m, property.__delete__, self.as_constant(), owner)
    return m.call(m.wrap(self.as_constant().fdel), [owner], {})


def _captured(generator, name):
    """A generator whose code is stepped through; others run as they are."""
    if not isinstance(generator, GeneratorV):
        raise Unsupported(f"`{name}` of a generator that was made before")
    return generator


@method(GeneratorType)
def send(m, self, value):
    generator = _captured(self, "send")
    waiting = generator.frame.finished
    begun = waiting is None or waiting[0] == "yield" or self.done
    if not begun and not is_none(value):
        m.throw(TypeError, "can't send non-None value to a just-started generator")
    result = generator.send(m, value)
    return result if result is not None else generator.stop(m)


@method(GeneratorType)
def throw(m, self, kind, value=NONE, traceback=NONE):
    given = value if isinstance(value, InstanceV) else kind
    generator = _captured(self, "throw")
    try:
        error = UserError(exception_from(m, given, (_ for _ in ()).throw))
    except UserError as instead:  # of a class that makes something else: that is thrown
        if not isinstance(given.as_constant() if given.is_constant() else None, type):
            raise
        error = instead
    result = generator.throw(m, error)
    return result if result is not None else generator.stop(m)


@method(GeneratorType)
def close(m, self):
    try:
        result = _captured(self, "close").throw(m, UserError(ExceptionV(GeneratorExit, [])))
    except UserError as error:
        if not issubclass(error.value.python_type(), (GeneratorExit, StopIteration)):
            raise
        return NONE
    if result is not None:
        m.throw(RuntimeError, "generator ignored GeneratorExit")
    return NONE


@method(type, name="__instancecheck__")
def type_instancecheck(m, cls, value):
    """By the bases of its class, or else of what it says is its class."""
    wanted, kind = cls.as_constant(), value.python_type()
    if isinstance(value, KnownV):
        return ConstantV(m.real(type.__instancecheck__, wanted, value.real))
    rely_on_bases(m, kind)
    pretended = None if wanted in kind.__mro__ else pretended_class(m, value)
    return ConstantV(wanted in (pretended or kind).__mro__)


@method(type, name="__subclasscheck__")
def type_subclasscheck(m, cls, other):
    rely_on_bases(m, other.as_constant())
    return ConstantV(cls.as_constant() in other.as_constant().__mro__)


@method(type, name="__call__")
def type_call(m, self, /, *args, **kwargs):
    from .. import constructors as classes

    return classes.construct(m, self.as_constant(), list(args), kwargs, through_metaclass=False)


@method(type)
def mro(m, self):
    rely_on_bases(m, self.as_constant())
    return m.wrap_result(type.mro(self.as_constant()))


@method(type, name="__subclasses__")
def subclasses(m, self):
    raise Unsupported("`__subclasses__()`, which classes that are made later change")
