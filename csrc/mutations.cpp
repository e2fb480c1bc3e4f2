// Counting in front of what changes tensors, classes and dicts.
#include "mutations.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/library.h>

#include <initializer_list>
#include <utility>

namespace torchglass {

std::atomic<uint64_t> mutations_count{0};

namespace {

// Counts at its end, when the change is made: what runs in between may still see the old state.
struct Counted {
  ~Counted() { mutations_count.fetch_add(1, std::memory_order_relaxed); }
};

// ------------------------------------------------------------------------------------------ Python's ways

// A descriptor refers to a definition, which may lie in memory that is not to be written and which others share: so it
// is given a copy. `Place` tells the copies apart.
enum Place { Data, RequiresGrad, Class, Dict, SetRequiresGrad, Detach, Swap };

template <Place place>
struct Attribute {
  static inline PyGetSetDef definition{};
  static inline setter original = nullptr;

  static int set(PyObject* object, PyObject* value, void* closure) {
    const Counted counted;
    return original(object, value, closure);
  }

  // Of a descriptor with another setter than the first had nothing is counted.
  static bool count(PyObject* descriptor) {
    if (descriptor == nullptr || Py_TYPE(descriptor) != &PyGetSetDescr_Type) return false;
    PyGetSetDef*& used = reinterpret_cast<PyGetSetDescrObject*>(descriptor)->d_getset;
    if (used == &definition) return true;
    if (used->set == nullptr || (original != nullptr && used->set != original)) return false;
    if (original == nullptr) {
      original = used->set;
      definition = *used;
      definition.set = set;
    }
    used = &definition;
    return true;
  }
};

template <Place place>
struct Function {
  static inline PyMethodDef definition{};
  static inline PyCFunction original = nullptr;

  static PyObject* call(PyObject* self, PyObject* arguments) {
    const Counted counted;
    return original(self, arguments);
  }

  static PyObject* call_with_keywords(PyObject* self, PyObject* arguments, PyObject* keywords) {
    const Counted counted;
    return reinterpret_cast<PyCFunctionWithKeywords>(reinterpret_cast<void*>(original))(self, arguments, keywords);
  }

  static bool count(PyObject* function) {
    PyMethodDef** const used = definition_of(function);
    if (used == nullptr || *used == &definition) return used != nullptr;
    const int passed = (*used)->ml_flags & (METH_VARARGS | METH_KEYWORDS | METH_FASTCALL | METH_NOARGS | METH_O);
    const bool keywords = passed == (METH_VARARGS | METH_KEYWORDS);
    if (original != nullptr || (!keywords && passed != METH_VARARGS && passed != METH_NOARGS)) return false;
    original = (*used)->ml_meth;
    definition = **used;
    definition.ml_meth = keywords ? reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(call_with_keywords)) : call;
    *used = &definition;
    return true;
  }

  static PyMethodDef** definition_of(PyObject* function) {
    if (function == nullptr) return nullptr;
    if (Py_TYPE(function) == &PyMethodDescr_Type) return &reinterpret_cast<PyMethodDescrObject*>(function)->d_method;
    if (PyCFunction_CheckExact(function)) return &reinterpret_cast<PyCFunctionObject*>(function)->m_ml;
    return nullptr;
  }
};

// Borrowed; null without an exception.
PyObject* own_attribute(PyTypeObject* type, const char* name) {
  const Ref key(PyUnicode_InternFromString(name));
  PyObject* const found = key ? _PyType_Lookup(type, key.get()) : nullptr;
  PyErr_Clear();
  return found;
}

Ref attribute_of(const char* module, const char* name) {
  const Ref holder(PyImport_ImportModule(module));
  Ref found(holder ? PyObject_GetAttrString(holder.get(), name) : nullptr);
  PyErr_Clear();
  return found;
}

bool count_in_python() {
  auto* const tensor = reinterpret_cast<PyTypeObject*>(THPVariableClass);
  return Attribute<Class>::count(own_attribute(&PyBaseObject_Type, "__class__")) &&
      Attribute<Data>::count(own_attribute(tensor, "data")) &&
      Attribute<RequiresGrad>::count(own_attribute(tensor, "requires_grad")) &&
      Function<SetRequiresGrad>::count(own_attribute(tensor, "requires_grad_")) &&
      Function<Detach>::count(own_attribute(tensor, "detach_")) &&
      Function<Swap>::count(attribute_of("torch._C", "_swap_tensor_impl").get());
}

// ------------------------------------------------------------------------------------------ operators

// Every call of an operator passes the key BackendSelect, below autograd and above the backends. These have no kernel
// of their own there, and the others that change metadata in place (t_, squeeze_, resize_as_, ...) call one of them.
constexpr const char* operators[] = {
    "resize_", "as_strided_", "set_", "set_.source_Storage", "set_.source_Storage_storage_offset", "set_.source_Tensor",
};

void call_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const Counted counted;
  const c10::DispatchKeySet below(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::BackendSelect);
  op.redispatchBoxed(keys & below, stack);
}

void count_in_operators() {
  auto* const library =  // kept for good: its end would take the kernels away
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::BackendSelect, __FILE__, __LINE__);
  for (const char* name : operators) {
    library->impl(name, torch::CppFunction::makeFromBoxedFunction<&call_operator>());
  }
}

// ------------------------------------------------------------------------------------------ trying it out

// Makes one change after the other and asks whether it was counted.
bool hears_everything() {
  uint64_t before = mutations();
  const auto heard = [&](bool done) { return done && std::exchange(before, mutations()) != before; };
  const at::Tensor other = at::zeros({3});
  const std::initializer_list<void (*)(at::Tensor&, const at::Tensor&)> operations = {
      [](at::Tensor& tensor, const at::Tensor&) { tensor.t_(); },
      [](at::Tensor& tensor, const at::Tensor&) { tensor.transpose_(0, 1); },
      [](at::Tensor& tensor, const at::Tensor&) { tensor.unsqueeze_(0); },
      [](at::Tensor& tensor, const at::Tensor&) { tensor.squeeze_(); },
      [](at::Tensor& tensor, const at::Tensor&) { tensor.squeeze_(0); },
      [](at::Tensor& tensor, const at::Tensor&) { tensor.as_strided_({2}, {1}); },
      [](at::Tensor& tensor, const at::Tensor&) { tensor.resize_({4}); },
      [](at::Tensor& tensor, const at::Tensor& other) { tensor.resize_as_(other); },
      [](at::Tensor& tensor, const at::Tensor& other) { tensor.set_(other); },
      [](at::Tensor& tensor, const at::Tensor& other) { tensor.set_(other.storage()); },
      [](at::Tensor& tensor, const at::Tensor& other) { tensor.set_(other.storage(), 0, {2}, {1}); },
      [](at::Tensor& tensor, const at::Tensor&) { tensor.set_(); },
  };
  for (const auto& operation : operations) {
    at::Tensor tensor = at::zeros({2, 3});
    operation(tensor, other);
    if (!heard(true)) return false;
  }

  const Ref object(THPVariable_Wrap(at::zeros({2}))), second(THPVariable_Wrap(at::zeros({3})));
  const Ref swap = attribute_of("torch._C", "_swap_tensor_impl");
  if (!object || !second || !swap) return false;
  const auto called = [&](const char* name) { return bool(Ref(PyObject_CallMethod(object.get(), name, nullptr))); };
  return heard(PyObject_SetAttrString(object.get(), "data", second.get()) == 0) &&
      heard(PyObject_SetAttrString(object.get(), "requires_grad", Py_True) == 0) &&
      heard(called("requires_grad_")) && heard(called("detach_")) &&
      heard(bool(Ref(PyObject_CallFunctionObjArgs(swap.get(), object.get(), second.get(), nullptr))));
}

bool begin() {
  if (!count_in_python()) return false;
  bool usable = false;
  try {
    count_in_operators();
    usable = hears_everything();
  } catch (const std::exception&) {  // some mode of torch's is on in which tensors are others
  }
  PyErr_Clear();
  return usable;
}

}  // namespace

// No lock is held meanwhile: beginning may let another thread run, to which nothing is counted yet.
bool counts_mutations() {
  static bool begun = false, usable = false;
  if (!std::exchange(begun, true)) usable = begin();
  return usable;
}

bool counts_dict_of(PyTypeObject* type) {
  return counts_mutations() && Attribute<Dict>::count(own_attribute(type, "__dict__"));
}

}  // namespace torchglass
