// The frame hook as a module of its own, without torch, for any Python: tests/native/test_frame_hook.py builds it.
//
// In place of compiled functions it takes callables: compiled(parameters) returns (entry, fetched), None for a call
// without an entry, or False to leave the frame to Python. For a str C++ throws: std::bad_alloc, or an error of that text.
#include "../../csrc/frame_hook.h"
#include "../../csrc/tail_calls.h"

#include <new>
#include <stdexcept>

namespace torchglass {

Answer find_entry(PyObject* compiled, PyObject* const* parameters, Py_ssize_t count, Ref& entry, Ref& fetched) {
  const Ref tuple(PyTuple_New(count));
  for (Py_ssize_t i = 0; i < count; ++i) PyTuple_SET_ITEM(tuple.get(), i, Py_NewRef(parameters[i]));
  const Ref found(PyObject_CallOneArg(compiled, tuple.get()));
  if (!found) PyErr_Clear();
  if (!found || found.get() == Py_False) return Answer::Plain;
  if (found.get() == Py_None) return Answer::Miss;
  if (PyUnicode_Check(found.get())) {
    if (PyUnicode_CompareWithASCIIString(found.get(), "bad_alloc") == 0) throw std::bad_alloc();
    throw std::runtime_error(PyUnicode_AsUTF8(found.get()));
  }
  entry = Ref::borrow(PyTuple_GET_ITEM(found.get(), 0));
  fetched = Ref::borrow(PyTuple_GET_ITEM(found.get(), 1));
  return Answer::Entry;
}

}  // namespace torchglass

PyMODINIT_FUNC PyInit_frame_hook_alone() {
  static PyModuleDef definition = {
      PyModuleDef_HEAD_INIT, "frame_hook_alone", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};
  PyObject* module = PyModule_Create(&definition);
  return module != nullptr && torchglass::add_frame_hook(module) == 0 && torchglass::add_tail_calls() == 0 ? module : nullptr;
}
