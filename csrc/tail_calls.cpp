#include "tail_calls.h"

namespace torchglass {
namespace {

constexpr int few = 16;  // what nests shows in tracebacks and debuggers, so let ordinary programs nest
constexpr int outside = -1000000000;  // nobody is there who would run what was deferred

thread_local int depth = outside;
thread_local PyObject* pending_function = nullptr;
thread_local PyObject* pending_arguments = nullptr;
PyObject* mark = nullptr;  // returned in place of a result

}  // namespace

TailCalls::TailCalls() : before_(std::exchange(depth, 0)) {}

TailCalls::~TailCalls() {
  depth = before_;
}

PyObject* TailCalls::finish(PyObject* result) {
  while (result == mark) {
    Py_DECREF(result);
    const Ref function(std::exchange(pending_function, nullptr));
    const Ref arguments(std::exchange(pending_arguments, nullptr));
    depth = 0;
    result = PyObject_Call(function.get(), arguments.get(), nullptr);
  }
  return result;
}

Deeper::Deeper() {
  ++depth;
}

Deeper::~Deeper() {
  --depth;
}

bool too_deep() {
  return depth >= few;
}

PyObject* defer(PyObject* continuation, PyObject* const* args, Py_ssize_t count) {
  Ref arguments(PyTuple_New(count));
  if (!arguments) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) PyTuple_SET_ITEM(arguments.get(), i, Py_NewRef(args[i]));
  Py_XSETREF(pending_function, Py_NewRef(continuation));
  Py_XSETREF(pending_arguments, arguments.release());
  return Py_NewRef(mark);
}

int add_tail_calls() {
  mark = PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type));
  return mark == nullptr ? -1 : 0;
}

}  // namespace torchglass
