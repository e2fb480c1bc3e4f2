// Checks of one value: constants, types, identities, lengths, dict contents, attributes.
//
//   same_constant(value, expected) -> bool
//       What the check "constant" compares with, e.g. same_constant((1, 0.0), (True, -0.0)) is False twice over.
//       RecursionError where values nest deeper than the C stack goes; to a guard these are not the same.
#include "checks.h"
#include "stack.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Size.h>

#include <cmath>
#include <cstring>

namespace torchglass {
namespace {

struct Row {
  const char* name;
  Check check;
};

const Row rows[] = {
    {"type", Check::Type},
    {"identity", Check::Identity},
    {"constant", Check::Constant},
    {"tensor", Check::Tensor},
    {"length", Check::Length},
    {"dict_keys", Check::DictKeys},
    {"dict_has", Check::DictHas},
    {"dict_lacks", Check::DictLacks},
    {"has_attr", Check::HasAttr},
    {"lacks_attr", Check::LacksAttr},
    {"class_has", Check::ClassHas},
    {"class_kind", Check::ClassKind},
    {"class_lacks", Check::ClassLacks},
    {"mro", Check::Mro},
};

bool cleared(int answer) {
  if (answer < 0) PyErr_Clear();
  return answer == 1;
}

bool same_float(double a, double b) {
  return std::memcmp(&a, &b, sizeof(double)) == 0 || (std::isnan(a) && std::isnan(b));
}

bool same(PyObject* value, PyObject* expected);

bool same_items(PyObject* a, PyObject* b) {
  const Py_ssize_t count = PyTuple_GET_SIZE(a);
  if (count != PyTuple_GET_SIZE(b)) return false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!same(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i))) return false;
  }
  return true;
}

bool has_same_constant(PyObject* items, PyObject* wanted) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); ++i) {
    if (same(PyTuple_GET_ITEM(items, i), wanted)) return true;
  }
  return false;
}

bool same_sets(PyObject* a, PyObject* b) {
  if (PySet_GET_SIZE(a) != PySet_GET_SIZE(b)) return false;
  const Ref items_of_a(PySequence_Tuple(a));
  const Ref items_of_b(PySequence_Tuple(b));
  if (!items_of_a || !items_of_b) {
    PyErr_Clear();
    return false;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items_of_a.get()); ++i) {
    if (!has_same_constant(items_of_b.get(), PyTuple_GET_ITEM(items_of_a.get(), i))) return false;
  }
  return true;
}

bool is_subtype(PyTypeObject* type, PyTypeObject* base) {
  return base != nullptr && PyType_IsSubtype(type, base);
}

// NumPy's own scalars and dtypes: their text tells apart what == does not (NaN, -0.0).
bool is_compared_by_text(PyTypeObject* type) {
  static LoadedType scalar("numpy", "generic"), dtype("numpy", "dtype");
  if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0) return false;  // a class of the program's
  return is_subtype(type, scalar.get()) || is_subtype(type, dtype.get());
}

bool same_text(PyObject* a, PyObject* b) {
  const Ref text_of_a(PyObject_Repr(a));
  const Ref text_of_b(PyObject_Repr(b));
  if (!text_of_a || !text_of_b) {
    PyErr_Clear();
    return false;
  }
  return PyUnicode_Compare(text_of_a.get(), text_of_b.get()) == 0;
}

bool same_slices(PyObject* a, PyObject* b) {
  const auto* x = reinterpret_cast<PySliceObject*>(a);
  const auto* y = reinterpret_cast<PySliceObject*>(b);
  return same(x->start, y->start) && same(x->stop, y->stop) && same(x->step, y->step);
}

// Builtin types whose == runs no Python code and tells values apart.
bool is_compared_by_value(PyTypeObject* type) {
  return type == &PyLong_Type || type == &PyUnicode_Type || type == &PyBytes_Type || type == &PyRange_Type ||
      type == &THPDeviceType || type == &THPDtypeType;
}

// What same_constant says, or OutOfStack where values nest too deep for it.
bool same(PyObject* value, PyObject* expected) {
  if (value == expected) return true;
  PyTypeObject* type = Py_TYPE(expected);
  if (Py_TYPE(value) != type) return false;
  if (type == &PyFloat_Type) return same_float(PyFloat_AS_DOUBLE(value), PyFloat_AS_DOUBLE(expected));
  if (type == &PyComplex_Type) {
    const Py_complex a = PyComplex_AsCComplex(value), b = PyComplex_AsCComplex(expected);
    return same_float(a.real, b.real) && same_float(a.imag, b.imag);
  }
  if (is_compared_by_value(type)) return cleared(PyObject_RichCompareBool(value, expected, Py_EQ));
  ensure_stack();
  if (type == &PyTuple_Type || type == &THPSizeType) return same_items(value, expected);
  if (type == &PyFrozenSet_Type || type == &PySet_Type) return same_sets(value, expected);
  if (type == &PySlice_Type) return same_slices(value, expected);
  return is_compared_by_text(type) && same_text(value, expected);
}

bool asks_for_name(Check check) {
  return check == Check::HasAttr || check == Check::LacksAttr || check == Check::ClassLacks;
}

bool is_name_and_object(PyObject* expected) {
  return PyTuple_Check(expected) && PyTuple_GET_SIZE(expected) == 2 && PyUnicode_Check(PyTuple_GET_ITEM(expected, 0));
}

// What stands under a name in a class or its bases, as it is: borrowed, null if there is none.
PyObject* on_class(PyObject* value, PyObject* name) {
  return PyType_Check(value) ? _PyType_Lookup(reinterpret_cast<PyTypeObject*>(value), name) : nullptr;
}

bool fits_expected(const Condition& condition) {
  PyObject* expected = condition.expected.get();
  if (condition.check == Check::Type && !PyType_Check(expected)) {
    PyErr_SetString(PyExc_TypeError, "a type guard expects a type");
  } else if (condition.check == Check::DictKeys && !PyTuple_Check(expected)) {
    PyErr_SetString(PyExc_TypeError, "a dict_keys guard expects a tuple of keys");
  } else if (asks_for_name(condition.check) && !PyUnicode_Check(expected)) {
    PyErr_SetString(PyExc_TypeError, "an attribute guard expects a name");
  } else if ((condition.check == Check::ClassHas || condition.check == Check::ClassKind) && !is_name_and_object(expected)) {
    PyErr_SetString(PyExc_TypeError, "a guard on what a class has expects a name and an object");
  } else {
    return true;
  }
  return false;
}

bool is_builtin_dict(PyObject* object) {
  return PyDict_CheckExact(object) || PyODict_CheckExact(object);
}

// The keys of a dict are those that it holds, whatever the methods of its class answer.
bool has_keys(PyObject* value, PyObject* expected) {
  if (PyTuple_GET_SIZE(expected) == 0 && PyDict_Check(value)) return PyDict_GET_SIZE(value) == 0;
  if (PyDict_Check(value) && !PyODict_Check(value)) {
    if (PyDict_GET_SIZE(value) != PyTuple_GET_SIZE(expected)) return false;
    Py_ssize_t position = 0;
    PyObject *key = nullptr, *item = nullptr;
    for (Py_ssize_t i = 0; PyDict_Next(value, &position, &key, &item); ++i) {
      if (!same_constant(key, PyTuple_GET_ITEM(expected, i))) return false;
    }
    return true;
  }
  const Ref iterator(PyODict_Check(value) ? PyODict_Type.tp_iter(value) : PyObject_GetIter(value));
  const Ref keys(iterator ? PySequence_Tuple(iterator.get()) : nullptr);
  if (!keys) {
    PyErr_Clear();
    return false;
  }
  return same_items(keys.get(), expected);
}

// 1 if it has the key, 0 if not, -1 with an exception set if that cannot be said.
int contains(PyObject* value, PyObject* key) {
  return PyDict_Check(value) ? PyDict_Contains(value, key) : PySequence_Contains(value, key);
}

// 1, 0 or -1 with an exception set: only AttributeError says "no attribute".
int has_attribute(PyObject* value, PyObject* name) {
  const Ref found(PyObject_GetAttr(value, name));
  if (found) return 1;
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
  PyErr_Clear();
  return 0;
}

bool is_no(int answer) {
  if (answer < 0) PyErr_Clear();
  return answer == 0;
}

bool has_length(PyObject* value, Py_ssize_t length) {
  const Py_ssize_t size = PyObject_Size(value);
  if (size < 0) PyErr_Clear();
  return size == length;
}

// len() of these runs no Python code.
bool has_builtin_length(PyObject* value) {
  static LoadedType deque("collections", "deque");
  PyTypeObject* const type = Py_TYPE(value);
  if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0) return type == deque.get();  // one since Python 3.12
  return PyList_Check(value) || PyTuple_Check(value) || PyDict_Check(value) || PyAnySet_Check(value) ||
      PyUnicode_Check(value) || PyBytes_Check(value) || type == deque.get();
}

PyObject* same_constant_function(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 2) {
    PyErr_SetString(PyExc_TypeError, "same_constant takes two arguments");
    return nullptr;
  }
  return PyBool_FromLong(same(args[0], args[1]));
}

PyMethodDef checks_functions[] = {
    {"same_constant", method<same_constant_function>(),
     METH_FASTCALL, "same_constant(value, expected): equal type and equal value, 0.0 unlike -0.0, NaN like NaN."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool same_constant(PyObject* value, PyObject* expected) {
  try {
    return same(value, expected);
  } catch (const OutOfStack&) {
    return false;
  }
}

bool Condition::make(const char* name, PyObject* expected, Condition& out) {
  for (const Row& row : rows) {
    if (std::strcmp(row.name, name) != 0) continue;
    out.check = row.check;
    out.expected = Ref::borrow(expected);
    if (row.check == Check::Tensor) return (out.tensor = TensorFacts::from_tuple(expected)) != nullptr;
    if (row.check == Check::Length) {
      out.length = PyLong_AsSsize_t(expected);
      return out.length != -1 || !PyErr_Occurred();
    }
    return fits_expected(out);
  }
  PyErr_Format(PyExc_ValueError, "unknown check %s", name);
  return false;
}

bool Condition::holds(PyObject* value) const {
  PyObject* const wanted = expected.get();
  switch (check) {
    case Check::Type:
      return reinterpret_cast<PyObject*>(Py_TYPE(value)) == wanted;
    case Check::Identity:
      return value == wanted;
    case Check::Constant:
      return same_constant(value, wanted);
    case Check::Tensor:
      return tensor->match(value);
    case Check::Length:
      return has_length(value, length);
    case Check::DictKeys:
      return has_keys(value, wanted);
    case Check::DictHas:
      return cleared(contains(value, wanted));
    case Check::DictLacks:
      return is_no(contains(value, wanted));
    case Check::HasAttr:
      return cleared(has_attribute(value, wanted));
    case Check::LacksAttr:
      return is_no(has_attribute(value, wanted));
    case Check::ClassHas:
      return on_class(value, PyTuple_GET_ITEM(wanted, 0)) == PyTuple_GET_ITEM(wanted, 1);
    case Check::ClassKind: {
      PyObject* const found = on_class(value, PyTuple_GET_ITEM(wanted, 0));
      return found != nullptr && reinterpret_cast<PyObject*>(Py_TYPE(found)) == PyTuple_GET_ITEM(wanted, 1);
    }
    case Check::ClassLacks:
      return PyType_Check(value) && on_class(value, wanted) == nullptr;
    case Check::Mro:
      return PyType_Check(value) && reinterpret_cast<PyTypeObject*>(value)->tp_mro == wanted;
  }
  return false;
}

bool Condition::is_pure(PyObject* value) const {
  switch (check) {
    case Check::Length:
      return has_builtin_length(value);
    case Check::DictKeys:
      return PyDict_CheckExact(value) || (PyODict_CheckExact(value) && PyTuple_GET_SIZE(expected.get()) == 0);
    case Check::DictHas:
    case Check::DictLacks:
      return is_builtin_dict(value) && (PyUnicode_CheckExact(expected.get()) || PyLong_CheckExact(expected.get()));
    case Check::HasAttr:
    case Check::LacksAttr:
      return false;
    default:
      return true;
  }
}

bool Condition::is_permanent() const {
  if (check == Check::Constant) return !PySet_CheckExact(expected.get());
  if (check == Check::Identity) return true;
  if (check != Check::Type) return false;  // instances of Python classes may be given another class
  return (reinterpret_cast<PyTypeObject*>(expected.get())->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0;
}

// The order of an OrderedDict's keys changes without a new version, so only its being empty is covered.
bool Condition::is_covered_by_version(PyObject* value) const {
  if (check == Check::DictKeys && PyODict_CheckExact(value)) return PyTuple_GET_SIZE(expected.get()) == 0;
  const bool about_content =
      check == Check::DictKeys || check == Check::DictHas || check == Check::DictLacks || check == Check::Length;
  return about_content && is_builtin_dict(value);
}

bool Condition::is_about_class() const {
  return check == Check::ClassHas || check == Check::ClassKind || check == Check::ClassLacks || check == Check::Mro;
}

bool Condition::asks_for_empty_dict(PyObject* value) const {
  if (!is_builtin_dict(value)) return false;
  return check == Check::DictKeys ? PyTuple_GET_SIZE(expected.get()) == 0 : check == Check::Length && length == 0;
}

int add_checks(PyObject* module) {
  return PyModule_AddFunctions(module, checks_functions);
}

}  // namespace torchglass
