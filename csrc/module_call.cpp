// How a compiled module is called: straight to its forward where nn.Module.__call__ would do nothing else.
//
//   ModuleCall(cls, standard, own_hooks, shared, shared_hooks)
//       The `__call__` of the class of a compiled module. `cls` is the class of the original; `standard` maps names of
//       methods to the functions of nn.Module whose work is known here: where `cls` has others, by inheritance or since
//       somebody replaced them, its own `__call__` runs. So it does where one of the dicts of hooks, in the instance or
//       in the dict `shared`, is not empty, after `.compile()`, and while TorchScript traces.
//
// nn.Module.__call__ takes two Python frames and twelve attributes for that: more than the guards of a small model.
#include "native.h"

#include <torch/csrc/jit/frontend/tracer.h>

namespace torchglass {
namespace {

struct ModuleCall {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyTypeObject* cls;
  PyObject* standard;
  PyObject* own_hooks;
  PyObject* shared;
  PyObject* shared_hooks;
};

PyObject* call_name = nullptr;
PyObject* forward_name = nullptr;
PyObject* compiled_name = nullptr;

ModuleCall* as_call(PyObject* object) {
  return reinterpret_cast<ModuleCall*>(object);
}

// Whether each of the names leads to an empty dict. No exception is left set; one means no.
bool all_empty(PyObject* dict, PyObject* names) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) {
    PyObject* const found = PyDict_GetItemWithError(dict, PyTuple_GET_ITEM(names, i));
    if (found == nullptr || !PyDict_Check(found) || PyDict_GET_SIZE(found) != 0) {
      PyErr_Clear();
      return false;
    }
  }
  return true;
}

bool has_standard_methods(const ModuleCall* self) {
  PyObject *name = nullptr, *function = nullptr;
  for (Py_ssize_t i = 0; PyDict_Next(self->standard, &i, &name, &function);) {
    if (_PyType_Lookup(self->cls, name) != function) return false;
  }
  return true;
}

bool is_plain(const ModuleCall* self, PyObject* module) {
  if (!has_standard_methods(self) || torch::jit::tracer::isTracing()) return false;
  const Ref fields(PyObject_GenericGetDict(module, nullptr));
  if (!fields) {
    PyErr_Clear();
    return false;
  }
  PyObject* const compiled = PyDict_GetItemWithError(fields.get(), compiled_name);
  if (compiled == nullptr && PyErr_Occurred()) PyErr_Clear();
  return (compiled == nullptr || compiled == Py_None) && all_empty(fields.get(), self->own_hooks) &&
      all_empty(self->shared, self->shared_hooks);
}

Ref general_call(const ModuleCall* self, PyObject* module) {
  const Ref found = Ref::borrow(_PyType_Lookup(self->cls, call_name));
  if (!found) {
    PyErr_Format(PyExc_TypeError, "%.200s object is not callable", self->cls->tp_name);
    return {};
  }
  const descrgetfunc bind = Py_TYPE(found.get())->tp_descr_get;
  return bind == nullptr ? found : Ref(bind(found.get(), module, reinterpret_cast<PyObject*>(Py_TYPE(module))));
}

PyObject* call(PyObject* object, PyObject* const* args, size_t flags, PyObject* names) {
  const ModuleCall* const self = as_call(object);
  const Py_ssize_t count = PyVectorcall_NARGS(flags);
  if (count < 1) {
    PyErr_SetString(PyExc_TypeError, "ModuleCall: the first argument must be the module");
    return nullptr;
  }
  const Ref held = Ref::borrow(object);
  const bool plain = is_plain(self, args[0]);
  const Ref function = plain ? Ref(PyObject_GetAttr(args[0], forward_name)) : general_call(self, args[0]);
  return function ? PyObject_Vectorcall(function.get(), args + 1, count - 1, names) : nullptr;
}

// ------------------------------------------------------------------------------------------------ the Python type

PyObject* call_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"cls", "standard", "own_hooks", "shared", "shared_hooks", nullptr};
  PyObject *cls, *standard, *own_hooks, *shared, *shared_hooks;
  if (!PyArg_ParseTupleAndKeywords(
          args, kwargs, "O!O!O!O!O!:ModuleCall", const_cast<char**>(names), &PyType_Type, &cls, &PyDict_Type, &standard,
          &PyTuple_Type, &own_hooks, &PyDict_Type, &shared, &PyTuple_Type, &shared_hooks)) {
    return nullptr;
  }
  ModuleCall* const self = as_call(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  self->vectorcall = entry<call>;
  self->cls = reinterpret_cast<PyTypeObject*>(Py_NewRef(cls));
  self->standard = Py_NewRef(standard);
  self->own_hooks = Py_NewRef(own_hooks);
  self->shared = Py_NewRef(shared);
  self->shared_hooks = Py_NewRef(shared_hooks);
  return reinterpret_cast<PyObject*>(self);
}

int call_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(as_call(object)->cls);
  Py_VISIT(as_call(object)->standard);
  Py_VISIT(as_call(object)->shared);
  return 0;
}

void call_dealloc(PyObject* object) {
  ModuleCall* const self = as_call(object);
  PyObject_GC_UnTrack(object);
  Py_CLEAR(self->cls);
  Py_CLEAR(self->standard);
  Py_CLEAR(self->own_hooks);
  Py_CLEAR(self->shared);
  Py_CLEAR(self->shared_hooks);
  Py_TYPE(object)->tp_free(object);
}

PyObject* call_get(PyObject* object, PyObject* instance, PyObject*) {
  return instance == nullptr || instance == Py_None ? Py_NewRef(object) : PyMethod_New(object, instance);
}

PyTypeObject call_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

}  // namespace

int add_module_call(PyObject* module) {
  call_name = PyUnicode_InternFromString("__call__");
  forward_name = PyUnicode_InternFromString("forward");
  compiled_name = PyUnicode_InternFromString("_compiled_call_impl");
  if (call_name == nullptr || forward_name == nullptr || compiled_name == nullptr) return -1;
  call_type.tp_name = "torchglass._native.ModuleCall";
  call_type.tp_basicsize = sizeof(ModuleCall);
  call_type.tp_flags =
      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR;
  call_type.tp_vectorcall_offset = offsetof(ModuleCall, vectorcall);
  call_type.tp_call = PyVectorcall_Call;
  call_type.tp_new = entry<call_new>;
  call_type.tp_dealloc = quiet_entry<call_dealloc>;
  call_type.tp_traverse = quiet_entry<call_traverse>;
  call_type.tp_descr_get = entry<call_get>;
  if (PyType_Ready(&call_type) < 0) return -1;
  return PyModule_AddObjectRef(module, "ModuleCall", reinterpret_cast<PyObject*>(&call_type));
}

}  // namespace torchglass
