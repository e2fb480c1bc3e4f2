// The state that PyTorch keeps for the current thread, taken and put back as a whole.
//
//   ThreadState()      grad mode, modes, dispatch keys, transforms, hooks for saved tensors, ... as they are now
//   state.restore()    makes them so again, whatever was entered and not left since; on the thread it was made on
#include "native.h"

#include <ATen/ThreadLocalState.h>

namespace torchglass {
namespace {

struct ThreadState {
  PyObject_HEAD
  at::ThreadLocalState* state;
};

ThreadState* as_state(PyObject* object) { return reinterpret_cast<ThreadState*>(object); }

PyObject* state_new(PyTypeObject* type, PyObject*, PyObject*) {
  Ref object(type->tp_alloc(type, 0));
  if (object) as_state(object.get())->state = new at::ThreadLocalState();
  return object.release();
}

void state_dealloc(PyObject* object) {
  delete as_state(object)->state;
  Py_TYPE(object)->tp_free(object);
}

PyObject* state_restore(PyObject* object, PyObject*) {
  at::ThreadLocalState::setThreadLocalState(*as_state(object)->state);
  Py_RETURN_NONE;
}

PyMethodDef state_methods[] = {
    {"restore", method<state_restore>(), METH_NOARGS, "restore(): the thread's state as it was."},
    {nullptr, nullptr, 0, nullptr},
};

PyTypeObject state_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

}  // namespace

int add_thread_state(PyObject* module) {
  state_type.tp_name = "torchglass._native.ThreadState";
  state_type.tp_doc = "ThreadState(): this thread's state in PyTorch; see csrc/thread_state.cpp.";
  state_type.tp_basicsize = sizeof(ThreadState);
  state_type.tp_flags = Py_TPFLAGS_DEFAULT;
  state_type.tp_new = entry<state_new>;
  state_type.tp_dealloc = quiet_entry<state_dealloc>;
  state_type.tp_methods = state_methods;
  if (PyType_Ready(&state_type) < 0) return -1;
  return PyModule_AddObjectRef(module, "ThreadState", reinterpret_cast<PyObject*>(&state_type));
}

}  // namespace torchglass
