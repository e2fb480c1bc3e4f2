// Global state, read and compared.
//
//   global_state() -> tuple of 11: grad mode (bool), inference mode (bool), default dtype, CPU autocast dtype or None,
//       CUDA autocast dtype or None, deterministic (0, 1, 2 = warn only), __torch_function__ state (0 = enabled),
//       included and excluded thread-local dispatch keys (int), TorchFunctionModes, TorchDispatchModes (tuples).
//
// A mode stands for itself, except torch.device's and set_default_device's DeviceContext, which stands for its device.
// The dispatch keys cover what has no field of its own, such as functorch transforms and autocast on other devices.
#include "global_state.h"

#include <ATen/Context.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/PyInterpreter.h>

namespace torchglass {
namespace {

using FunctionModes = at::impl::PythonTorchFunctionTLS;
using DispatchModes = c10::impl::TorchDispatchModeTLS;

int8_t autocast_dtype(at::DeviceType device) {
  return at::autocast::is_autocast_enabled(device) ? static_cast<int8_t>(at::autocast::get_autocast_dtype(device)) : -1;
}

GlobalState read_scalars() {
  GlobalState now;
  now.grad_mode = c10::GradMode::is_enabled();
  now.inference_mode = c10::InferenceMode::is_enabled();
  now.default_dtype = static_cast<int8_t>(c10::get_default_dtype_as_scalartype());
  now.autocast_cpu = autocast_dtype(at::kCPU);
  now.autocast_cuda = autocast_dtype(at::kCUDA);
  const auto& context = at::globalContext();
  if (context.deterministicAlgorithms()) now.deterministic = context.deterministicAlgorithmsWarnOnly() ? 2 : 1;
  now.torch_function = static_cast<int8_t>(FunctionModes::get_disabled_state());
  const auto keys = c10::impl::tls_local_dispatch_key_set();
  now.included = keys.included_.raw_repr();
  now.excluded = keys.excluded_.raw_repr();
  return now;
}

bool same_scalars(const GlobalState& a, const GlobalState& b) {
  return a.grad_mode == b.grad_mode && a.inference_mode == b.inference_mode && a.default_dtype == b.default_dtype &&
      a.autocast_cpu == b.autocast_cpu && a.autocast_cuda == b.autocast_cuda && a.deterministic == b.deterministic &&
      a.torch_function == b.torch_function && a.included == b.included && a.excluded == b.excluded;
}

// What a mode is compared by: a new reference.
Ref mode_key(PyObject* mode) {
  static LoadedType device_context("torch.utils._device", "DeviceContext");
  if (Py_TYPE(mode) == device_context.get()) {
    Ref device(PyObject_GetAttrString(mode, "device"));
    if (device) return device;
    PyErr_Clear();
  }
  return Ref::borrow(mode);
}

template <class Modes>
Ref mode_at(int64_t index) {
  return mode_key(Modes::get_stack_at(index)->ptr(getPyInterpreter()));
}

template <class Modes>
Ref active_modes() {
  const int64_t count = Modes::stack_len();
  Ref tuple(PyTuple_New(count));
  for (int64_t i = 0; tuple && i < count; ++i) PyTuple_SET_ITEM(tuple.get(), i, mode_at<Modes>(i).release());
  return tuple;
}

template <class Modes>
bool same_modes(PyObject* expected) {
  const int64_t count = Modes::stack_len();
  if (PyTuple_GET_SIZE(expected) != count) return false;
  for (int64_t i = 0; i < count; ++i) {
    PyObject* wanted = PyTuple_GET_ITEM(expected, i);
    const Ref key = mode_at<Modes>(i);
    if (key.get() == wanted) continue;
    if (Py_TYPE(key.get()) != Py_TYPE(wanted) || Py_TYPE(wanted)->tp_flags & Py_TPFLAGS_HEAPTYPE) return false;
    const int equal = PyObject_RichCompareBool(key.get(), wanted, Py_EQ);  // torch.device: no Python code
    if (equal < 0) PyErr_Clear();
    if (equal != 1) return false;
  }
  return true;
}

PyObject* dtype_object(int8_t dtype) {
  if (dtype < 0) Py_RETURN_NONE;
  return Py_NewRef(reinterpret_cast<PyObject*>(torch::getTHPDtype(static_cast<at::ScalarType>(dtype))));
}

bool read_dtype(PyObject* object, int8_t& out) {
  if (object != Py_None && !THPDtype_Check(object)) {
    PyErr_SetString(PyExc_TypeError, "global state: expected a dtype or None");
    return false;
  }
  out = object == Py_None ? -1 : static_cast<int8_t>(reinterpret_cast<THPDtype*>(object)->scalar_type);
  return true;
}

PyObject* global_state(PyObject*, PyObject*) {
  const GlobalState now = read_scalars();
  Ref function_modes = active_modes<FunctionModes>();
  Ref dispatch_modes = active_modes<DispatchModes>();
  if (!function_modes || !dispatch_modes) return nullptr;
  return Py_BuildValue(
      "(NNNNNiiKKNN)", PyBool_FromLong(now.grad_mode), PyBool_FromLong(now.inference_mode),
      dtype_object(now.default_dtype), dtype_object(now.autocast_cpu), dtype_object(now.autocast_cuda),
      static_cast<int>(now.deterministic), static_cast<int>(now.torch_function),
      static_cast<unsigned long long>(now.included), static_cast<unsigned long long>(now.excluded),
      function_modes.release(), dispatch_modes.release());
}

PyMethodDef global_state_functions[] = {
    {"global_state", method<global_state>(), METH_NOARGS, "global_state(): the state outside the arguments, as a tuple of 11."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool GlobalState::from_tuple(PyObject* tuple, GlobalState& out) {
  int grad = 0, inference = 0, deterministic = 0, torch_function = 0;
  PyObject *dtype, *cpu, *cuda, *functions_tuple, *dispatch_tuple;
  unsigned long long included = 0, excluded = 0;
  if (!expect_tuple(tuple, "GuardTable: state") || !PyArg_ParseTuple(
          tuple, "ppOOOiiKKO!O!", &grad, &inference, &dtype, &cpu, &cuda, &deterministic, &torch_function, &included,
          &excluded, &PyTuple_Type, &functions_tuple, &PyTuple_Type, &dispatch_tuple) ||
      !read_dtype(dtype, out.default_dtype) || !read_dtype(cpu, out.autocast_cpu) ||
      !read_dtype(cuda, out.autocast_cuda)) {
    return false;
  }
  out.grad_mode = grad != 0;
  out.inference_mode = inference != 0;
  out.deterministic = static_cast<int8_t>(deterministic);
  out.torch_function = static_cast<int8_t>(torch_function);
  out.included = included;
  out.excluded = excluded;
  out.function_modes = Ref::borrow(functions_tuple);
  out.dispatch_modes = Ref::borrow(dispatch_tuple);
  return true;
}

bool GlobalState::is_current() const {
  return same_scalars(*this, read_scalars()) && same_modes<FunctionModes>(function_modes.get()) &&
      same_modes<DispatchModes>(dispatch_modes.get());
}

int add_global_state(PyObject* module) {
  return PyModule_AddFunctions(module, global_state_functions);
}

}  // namespace torchglass
