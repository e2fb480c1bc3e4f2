// The one place where errors change hands. What goes wrong in native code is one of three things:
//
//   an argument that does not fit    the caller's mistake: looked at before anything is done, and raised by hand as the
//                                    TypeError, ValueError, IndexError or OverflowError that names function and argument
//   what C++ throws                  std::bad_alloc is MemoryError, OutOfStack RecursionError; PyTorch's own errors are what PyTorch makes of them
//                                    (IndexError, NotImplementedError, ... and what a Python callback raised), without
//                                    the C++ backtrace; any other std::exception is RuntimeError with its text
//   what a guard cannot find out     is an answer, no: guards catch it where they ask (checks.cpp, tensor_facts.cpp)
//
// Functions throw or set an error and return null, as is easier; entry<> (native.h) turns the one into the other.
//
// Example: number_tensor(1, torch.int8) is TypeError by hand, empty_strided((1 << 60,), (1,), torch.float32) throws
// c10::Error, which is RuntimeError.
#include "native.h"
#include "stack.h"

#include <new>

#if __has_include(<torch/csrc/Exceptions.h>)  // tests build the frame hook for Pythons without torch
#include <torch/csrc/Exceptions.h>
#endif

namespace torchglass {
namespace {

void translate() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const OutOfStack& error) {
    PyErr_SetString(PyExc_RecursionError, error.what());
  } catch (const std::exception& error) {
#if __has_include(<torch/csrc/Exceptions.h>)
    torch::translate_exception_to_python(std::current_exception());
#else
    PyErr_SetString(PyExc_RuntimeError, error.what());
#endif
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "torchglass: C++ code threw something that is no std::exception");
  }
}

}  // namespace

void set_python_error() noexcept {
  try {
    translate();
  } catch (...) {  // making the message failed
    PyErr_NoMemory();
  }
}

bool expect_tuple(PyObject* object, const char* what) {
  if (PyTuple_Check(object)) return true;
  PyErr_Format(PyExc_TypeError, "%s must be a tuple, not %.200s", what, Py_TYPE(object)->tp_name);
  return false;
}

void report_unraisable() noexcept {
  if (!Py_IsInitialized() || !PyGILState_Check()) return;  // a tensor's memory is freed on any thread, at any time
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  set_python_error();
  PyErr_WriteUnraisable(nullptr);
  PyErr_Restore(type, value, traceback);
}

}  // namespace torchglass
