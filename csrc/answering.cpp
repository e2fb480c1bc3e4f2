// A method that PyTorch's C++ calls where it cannot take an exception, and ends the process instead.
//
//   answering(method, queries)   the same method; called for one of the queries (its second argument), it is asked again
//                                if an exception from outside strikes it
//   meet_exception()             the thread meets that exception here, or earlier, in a call for something else
//
// __torch_dispatch__ of a fake tensor is such: which device it is on is asked in functions that are noexcept.
#include "native.h"

namespace torchglass {
namespace {

constexpr int kTries = 8;

thread_local PyObject* struck_by = nullptr;

int meet() {
  if (struck_by == nullptr) return 0;
  PyObject* error = struck_by;
  struck_by = nullptr;
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error)), error);
  Py_DECREF(error);
  return -1;
}

// `held`: the method and the set of queries
PyObject* ask(PyObject* held, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  PyObject* method = PyTuple_GET_ITEM(held, 0);
  const int is_query = count < 2 ? 0 : PySet_Contains(PyTuple_GET_ITEM(held, 1), args[1]);
  if (is_query < 0 || (is_query == 0 && meet() < 0)) return nullptr;
  PyObject* result = PyObject_Vectorcall(method, args, count, names);
  for (int tries = 0; is_query && result == nullptr && tries < kTries; ++tries) {
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    Py_XSETREF(struck_by, error);
    result = PyObject_Vectorcall(method, args, count, names);
  }
  if (result == nullptr) Py_CLEAR(struck_by);  // it fails by itself
  return result;
}

PyObject* meet_exception(PyObject*, PyObject*) {
  if (meet() < 0) return nullptr;
  Py_RETURN_NONE;
}

PyMethodDef ask_method = {"__torch_dispatch__", method<ask>(),
                          METH_FASTCALL | METH_KEYWORDS, nullptr};

PyObject* answering(PyObject*, PyObject* args) {
  PyObject *method, *queries;
  if (!PyArg_ParseTuple(args, "OO!:answering", &method, &PyFrozenSet_Type, &queries)) return nullptr;
  PyObject* held = PyTuple_Pack(2, method, queries);
  if (held == nullptr) return nullptr;
  PyObject* function = PyCFunction_New(&ask_method, held);
  Py_DECREF(held);
  if (function == nullptr) return nullptr;
  PyObject* bound_later = PyInstanceMethod_New(function);
  Py_DECREF(function);
  return bound_later;
}

PyMethodDef answering_functions[] = {
    {"answering", method<answering>(), METH_VARARGS, "answering(method, queries): see csrc/answering.cpp."},
    {"meet_exception", method<meet_exception>(), METH_NOARGS, "meet_exception(): raise what struck a query since."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_answering(PyObject* module) { return PyModule_AddFunctions(module, answering_functions); }

}  // namespace torchglass
