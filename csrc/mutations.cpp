// Counting in front of what changes tensors, classes and dicts; with it, all that native code changes of other people's
// types: the table `changes`.
//
//   process_changes() -> tuple of (of, attribute, why, whether it is in place now)
//   undo_process_changes()    as before the first; the next table that can use them makes them again. Not while another
//                             thread computes: kernels of operators are taken away.
#include "mutations.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/library.h>

#include <initializer_list>
#include <iterator>
#include <utility>

namespace torchglass {

std::atomic<uint64_t> mutations_count{0};
bool mutations_counted = false;

namespace {

// Counts at its end, when the change is made: what runs in between may still see the old state.
struct Counted {
  ~Counted() { mutations_count.fetch_add(1, std::memory_order_relaxed); }
};

// ------------------------------------------------------------------------------------------ Python's ways

// A descriptor refers to a definition, which may lie in memory that is not to be written and which others share: so it
// is given a copy, for good. What is put into the copy is ours, and the original again when that is undone. `Place` tells
// the copies apart.
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
    if (used != &definition) {
      if (used->set == nullptr || (original != nullptr && used->set != original)) return false;
      if (original == nullptr) {
        original = used->set;
        definition = *used;
      }
      used = &definition;
    }
    return count_again();
  }

  static bool count_again() {
    if (original != nullptr) definition.set = entry<set>;
    return true;
  }

  static void undo() { definition.set = original; }
  static bool is_in_place() { return original != nullptr && definition.set != original; }
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
    if (used == nullptr) return false;
    const int passed = (*used)->ml_flags & (METH_VARARGS | METH_KEYWORDS | METH_FASTCALL | METH_NOARGS | METH_O);
    const bool keywords = passed == (METH_VARARGS | METH_KEYWORDS);
    if (*used != &definition) {
      if (original != nullptr || (!keywords && passed != METH_VARARGS && passed != METH_NOARGS)) return false;
      original = (*used)->ml_meth;
      definition = **used;
      *used = &definition;
    }
    definition.ml_meth = keywords ? method<call_with_keywords>() : entry<call>;
    return true;
  }

  static void undo() { definition.ml_meth = original; }
  static bool is_in_place() { return original != nullptr && definition.ml_meth != original; }

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

torch::Library* library = nullptr;  // its end takes the kernels away; never destroyed with the process

bool count_in_operators() {
  library = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::BackendSelect, __FILE__, __LINE__);
  for (const char* name : operators) {
    library->impl(name, torch::CppFunction::makeFromBoxedFunction<&call_operator>());
  }
  return true;
}

// ------------------------------------------------------------------------------------------ the table

PyTypeObject* tensor_type() {
  return reinterpret_cast<PyTypeObject*>(THPVariableClass);
}

// What is changed for the whole process, in the order in which it is: in front of each a count, and nothing else.
struct Change {
  const char* of;
  const char* attribute;
  const char* why;
  bool (*make)();  // false where this Python or torch has something else there
  void (*undo)();
  bool (*is_in_place)();
};

template <class How>
constexpr Change change(const char* of, const char* attribute, const char* why, bool (*make)()) {
  return {of, attribute, why, make, How::undo, How::is_in_place};
}

const Change changes[] = {
    change<Attribute<Class>>(
        "object", "__class__", "objects whose class guards know are given another",
        [] { return Attribute<Class>::count(own_attribute(&PyBaseObject_Type, "__class__")); }),
    change<Attribute<Data>>(
        "torch.Tensor", "data", "a parameter is given other memory, sizes or dtype",
        [] { return Attribute<Data>::count(own_attribute(tensor_type(), "data")); }),
    change<Attribute<RequiresGrad>>(
        "torch.Tensor", "requires_grad", "a parameter is frozen",
        [] { return Attribute<RequiresGrad>::count(own_attribute(tensor_type(), "requires_grad")); }),
    change<Function<SetRequiresGrad>>(
        "torch.Tensor", "requires_grad_", "a parameter is frozen",
        [] { return Function<SetRequiresGrad>::count(own_attribute(tensor_type(), "requires_grad_")); }),
    change<Function<Detach>>(
        "torch.Tensor", "detach_", "a parameter is frozen",
        [] { return Function<Detach>::count(own_attribute(tensor_type(), "detach_")); }),
    change<Function<Swap>>(
        "torch._C", "_swap_tensor_impl", "torch.utils.swap_tensors exchanges parameters",
        [] { return Function<Swap>::count(attribute_of("torch._C", "_swap_tensor_impl").get()); }),
    // of each class when a guard first walks the dict of one of its objects: counts_dict_of
    change<Attribute<Dict>>(
        "each class whose objects guards look into", "__dict__", "an object is given another dict",
        [] { return Attribute<Dict>::count_again(); }),
    {"torch.ops.aten", "resize_, as_strided_, set_", "operators change a parameter's sizes or memory",
     count_in_operators, [] { delete std::exchange(library, nullptr); }, [] { return library != nullptr; }},
};

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

bool make_changes() {
  for (const Change& change : changes) {
    if (!change.make()) return false;
  }
  return hears_everything();
}

// How often the changes were undone: whoever makes them meanwhile has made some of them in vain.
uint64_t times_undone = 0;
bool begun = false;

void undo_changes() {
  ++times_undone;
  mutations_counted = begun = false;
  for (const Change& change : changes) {
    if (change.is_in_place()) change.undo();
  }
}

// Changes made while nothing was counted count as one.
void begin() {
  const uint64_t before = times_undone;
  bool usable = false;
  try {
    usable = make_changes();
  } catch (const std::exception&) {  // some mode of torch's is on in which tensors are others
  }
  PyErr_Clear();
  const bool undone = before != times_undone;
  usable = usable && !undone;
  if (!usable) undo_changes();
  begun = !undone;
  mutations_count.fetch_add(1, std::memory_order_relaxed);
  mutations_counted = usable;
}

PyObject* process_changes(PyObject*, PyObject*) {
  Ref rows(PyTuple_New(std::size(changes)));
  for (size_t i = 0; rows && i < std::size(changes); ++i) {
    const Change& change = changes[i];
    PyObject* const in_place = change.is_in_place() ? Py_True : Py_False;
    PyObject* const row = Py_BuildValue("(sssO)", change.of, change.attribute, change.why, in_place);
    if (row == nullptr) return nullptr;
    PyTuple_SET_ITEM(rows.get(), i, row);
  }
  return rows.release();
}

PyObject* undo_process_changes(PyObject*, PyObject*) {
  undo_changes();
  Py_RETURN_NONE;
}

PyMethodDef mutations_functions[] = {
    {"process_changes", method<process_changes>(), METH_NOARGS,
     "process_changes(): what native code changes of other people's types: (of, attribute, why, in place)."},
    {"undo_process_changes", method<undo_process_changes>(), METH_NOARGS, "undo_process_changes(): until they are needed again."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

// No lock is held meanwhile: beginning may let another thread run, to which nothing is counted yet.
bool counts_mutations() {
  if (!std::exchange(begun, true)) begin();
  return mutations_counted;
}

bool counts_dict_of(PyTypeObject* type) {
  return counts_mutations() && Attribute<Dict>::count(own_attribute(type, "__dict__"));
}

int add_mutations(PyObject* module) {
  return PyModule_AddFunctions(module, mutations_functions);
}

}  // namespace torchglass
