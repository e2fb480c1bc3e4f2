// What generated wrappers call.
//
//   Kernel(address: int, name: str, owner: object = None) -> callable
//       kernel(*args) -> None. Arguments are Tensors (CPU or CUDA, with storage) and ints. The C function at
//       `address`, `void f(void **a)`, gets a[i] = the tensor's data_ptr, or the int's value as int64 in the pointer
//       itself ((int64_t)a[i]). The GIL is released during the call. `owner` (say, the loaded library) is kept alive.
//       TypeError names kernel and argument for anything else; OverflowError for an int past 64 bits.
//   empty_strided(sizes: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype, device: torch.device = cpu)
//       An uninitialised tensor, on a GPU by PyTorch's allocator. No dispatcher, so no mode, profiler or autograd sees
//       it. ValueError for another kind of device.
//   reinterpret(tensor, sizes: tuple[int, ...], strides: tuple[int, ...], storage_offset: int) -> Tensor
//       tensor.as_strided(...) without dispatcher and autograd: a tensor on the same storage, of the same dtype, with
//       requires_grad False and a version counter of its own. `storage_offset` counts elements from the storage's
//       start, as in as_strided. ValueError if the view would leave the storage, TypeError for another kind of tensor
//       than a plain strided one.
//   number_tensor(value: float | int, dtype: torch.dtype) -> Tensor
//       A tensor of no dimensions, float64, float32 or int64, as torch.scalar_tensor(value).to(dtype) makes it.
//       OverflowError for an int past 64 bits.
//   has_layout(object, sizes: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> bool
//       Whether the object is a tensor of this metadata.
//
// Example: k = Kernel(ctypes.cast(lib.add, c_void_p).value, "add", lib); k(x, y, out, out.numel())
#include "memory.h"
#include "tensor_facts.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>

#include <memory>

namespace torchglass {
namespace {

using KernelFunction = void (*)(void**);
using Sizes = c10::SmallVector<int64_t, 8>;

// ------------------------------------------------------------------------------------------------ Kernel

struct Kernel {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  KernelFunction function;
  PyObject* name;
  PyObject* owner;
};

bool fill_argument(Kernel* self, Py_ssize_t index, PyObject* arg, void** slot) {
  if (is_tensor(arg)) {
    const at::Tensor& tensor = THPVariable_Unpack(arg);
    try {
      *slot = tensor.data_ptr();
    } catch (const std::exception&) {  // a fake, sparse or functorch tensor
      *slot = nullptr;
    }
    if (*slot == nullptr && (!tensor.defined() || !tensor.has_storage() || tensor.numel() != 0)) {
      PyErr_Format(PyExc_TypeError, "kernel %U: argument %zd is a tensor without data", self->name, index);
      return false;
    }
    return true;
  }
  if (PyLong_Check(arg)) {
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(arg, &overflow);
    if (overflow) {
      PyErr_Format(PyExc_OverflowError, "kernel %U: argument %zd does not fit 64 bits", self->name, index);
      return false;
    }
    *slot = reinterpret_cast<void*>(static_cast<intptr_t>(value));
    return true;
  }
  PyErr_Format(
      PyExc_TypeError,
      "kernel %U: argument %zd must be a Tensor or an int, not %.200s",
      self->name,
      index,
      Py_TYPE(arg)->tp_name);
  return false;
}

PyObject* kernel_call(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  auto* self = reinterpret_cast<Kernel*>(object);
  if (kwnames != nullptr && PyTuple_GET_SIZE(kwnames) != 0) {
    PyErr_Format(PyExc_TypeError, "kernel %U takes no keyword arguments", self->name);
    return nullptr;
  }
  const Py_ssize_t count = PyVectorcall_NARGS(nargsf);
  void* inline_pointers[64];
  std::unique_ptr<void*[]> heap_pointers(count > 64 ? new void*[count] : nullptr);
  void** pointers = heap_pointers ? heap_pointers.get() : inline_pointers;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!fill_argument(self, i, args[i], &pointers[i])) return nullptr;
  }
  Py_BEGIN_ALLOW_THREADS
  self->function(pointers);
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

PyObject* kernel_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"address", "name", "owner", nullptr};
  PyObject* address = nullptr;
  PyObject* name = nullptr;
  PyObject* owner = Py_None;
  if (!PyArg_ParseTupleAndKeywords(
          args, kwargs, "O!U|O:Kernel", const_cast<char**>(names), &PyLong_Type, &address, &name, &owner)) {
    return nullptr;
  }
  void* function = PyLong_AsVoidPtr(address);
  if (function == nullptr) {
    if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "kernel %U: the address is null", name);
    return nullptr;
  }
  auto* self = reinterpret_cast<Kernel*>(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  self->vectorcall = entry<kernel_call>;
  self->function = reinterpret_cast<KernelFunction>(function);
  self->name = Py_NewRef(name);
  self->owner = Py_NewRef(owner);
  return reinterpret_cast<PyObject*>(self);
}

int kernel_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(reinterpret_cast<Kernel*>(object)->owner);
  return 0;
}

int kernel_clear(PyObject* object) {
  Py_CLEAR(reinterpret_cast<Kernel*>(object)->owner);
  return 0;
}

void kernel_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  kernel_clear(object);
  Py_CLEAR(reinterpret_cast<Kernel*>(object)->name);
  Py_TYPE(object)->tp_free(object);
}

PyObject* kernel_repr(PyObject* object) {
  return PyUnicode_FromFormat("<Kernel %U>", reinterpret_cast<Kernel*>(object)->name);
}

PyMemberDef kernel_members[] = {
    {"__name__", T_OBJECT, offsetof(Kernel, name), READONLY, "the kernel's name"},
    {"owner", T_OBJECT, offsetof(Kernel, owner), READONLY, "what must live as long as the address"},
    {nullptr, 0, 0, 0, nullptr},
};

PyTypeObject kernel_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

int ready_kernel() {
  kernel_type.tp_name = "torchglass._native.Kernel";
  kernel_type.tp_doc = "Kernel(address, name, owner=None): a C function void f(void **a), called with tensors and ints.";
  kernel_type.tp_basicsize = sizeof(Kernel);
  kernel_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL;
  kernel_type.tp_vectorcall_offset = offsetof(Kernel, vectorcall);
  kernel_type.tp_call = PyVectorcall_Call;
  kernel_type.tp_new = entry<kernel_new>;
  kernel_type.tp_dealloc = quiet_entry<kernel_dealloc>;
  kernel_type.tp_traverse = quiet_entry<kernel_traverse>;
  kernel_type.tp_clear = entry<kernel_clear>;
  kernel_type.tp_repr = entry<kernel_repr>;
  kernel_type.tp_members = kernel_members;
  return PyType_Ready(&kernel_type);
}

// ------------------------------------------------------------------------------------------------ tensors

// Fills `out` from a tuple (or torch.Size) of ints; with `nonnegative`, refuses negative ones.
bool read_ints(PyObject* object, const char* what, bool nonnegative, Sizes& out) {
  if (!PyTuple_Check(object)) {
    PyErr_Format(PyExc_TypeError, "%s must be a tuple of ints, not %.200s", what, Py_TYPE(object)->tp_name);
    return false;
  }
  const Py_ssize_t count = PyTuple_GET_SIZE(object);
  out.resize(count);
  for (Py_ssize_t i = 0; i < count; ++i) {
    const long long value = PyLong_AsLongLong(PyTuple_GET_ITEM(object, i));
    if (value == -1 && PyErr_Occurred()) return false;
    if (nonnegative && value < 0) {
      PyErr_Format(PyExc_ValueError, "%s must not be negative: %R", what, object);
      return false;
    }
    out[i] = value;
  }
  return true;
}

bool read_layout(PyObject* sizes, PyObject* strides, Sizes& sizes_out, Sizes& strides_out) {
  if (!read_ints(sizes, "sizes", true, sizes_out) || !read_ints(strides, "strides", true, strides_out)) return false;
  if (sizes_out.size() == strides_out.size()) return true;
  PyErr_Format(PyExc_ValueError, "sizes %R and strides %R differ in length", sizes, strides);
  return false;
}

// What PyTorch's own empty_strided makes, less what finds it.
at::Tensor empty_on_gpu(const Sizes& sizes, const Sizes& strides, at::ScalarType dtype, c10::Device device) {
  at::globalContext().lazyInitDevice(c10::kCUDA);
  const c10::DeviceGuard guard(device);
  c10::Allocator* const allocator = c10::GetAllocator(c10::kCUDA);
  return at::detail::empty_strided_generic(
      sizes, strides, allocator, c10::DispatchKeySet(c10::DispatchKey::CUDA), dtype);
}

PyObject* empty_strided(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count < 3 || count > 4 || !THPDtype_Check(args[2]) || (count == 4 && !THPDevice_Check(args[3]))) {
    PyErr_SetString(
        PyExc_TypeError, "empty_strided(sizes, strides, dtype, device) takes two tuples, a torch.dtype and a torch.device");
    return nullptr;
  }
  Sizes sizes, strides;
  if (!read_layout(args[0], args[1], sizes, strides)) return nullptr;
  const auto dtype = reinterpret_cast<THPDtype*>(args[2])->scalar_type;
  const c10::Device device = count == 4 ? reinterpret_cast<THPDevice*>(args[3])->device : c10::Device(c10::kCPU);
  if (device.is_cuda()) return THPVariable_Wrap(empty_on_gpu(sizes, strides, dtype, device));
  if (device.is_cpu()) return THPVariable_Wrap(empty_kept(sizes, strides, dtype));
  PyErr_Format(PyExc_ValueError, "empty_strided: no memory on %R", args[3]);
  return nullptr;
}

PyObject* number_tensor(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 2 || !THPDtype_Check(args[1])) {
    PyErr_SetString(PyExc_TypeError, "number_tensor(value, dtype) takes a number and a torch.dtype");
    return nullptr;
  }
  const bool whole = PyLong_Check(args[0]);
  const long long integer = whole ? PyLong_AsLongLong(args[0]) : 0;
  if (integer == -1 && PyErr_Occurred()) return nullptr;
  const double real = whole ? 0 : PyFloat_AsDouble(args[0]);
  if (real == -1 && PyErr_Occurred()) return nullptr;
  const auto dtype = reinterpret_cast<THPDtype*>(args[1])->scalar_type;
  at::Tensor made = empty_kept(Sizes(), Sizes(), dtype);
  switch (dtype) {
    case at::kDouble:
      *static_cast<double*>(made.mutable_data_ptr()) = whole ? static_cast<double>(integer) : real;
      break;
    case at::kFloat:
      *static_cast<float*>(made.mutable_data_ptr()) = whole ? static_cast<float>(integer) : static_cast<float>(real);
      break;
    case at::kLong:
      *static_cast<int64_t*>(made.mutable_data_ptr()) = whole ? integer : static_cast<int64_t>(real);
      break;
    default:
      PyErr_SetString(PyExc_TypeError, "number_tensor makes float64, float32 and int64");
      return nullptr;
  }
  return THPVariable_Wrap(std::move(made));
}

bool view_fits(const at::Tensor& tensor, const Sizes& sizes, const Sizes& strides, int64_t offset) {
  const int64_t itemsize = static_cast<int64_t>(tensor.itemsize());
  const int64_t limit = static_cast<int64_t>(tensor.storage().nbytes()) / itemsize;
  int64_t last = offset;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return true;
    int64_t step = 0;
    if (__builtin_mul_overflow(sizes[i] - 1, strides[i], &step) || __builtin_add_overflow(last, step, &last)) {
      return false;
    }
  }
  return last < limit;
}

// Kinds of tensors whose numbers are not those in the storage at sizes and strides, or that have no storage.
constexpr c10::DispatchKeySet not_strided({
    c10::DispatchKey::Python, c10::DispatchKey::Quantized, c10::DispatchKey::NestedTensor, c10::DispatchKey::Sparse,
    c10::DispatchKey::SparseCsr, c10::DispatchKey::Functionalize, c10::DispatchKey::FuncTorchBatched,
    c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::BatchedNestedTensor,
});

PyObject* reinterpret(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 4 || !is_tensor(args[0])) {
    PyErr_SetString(PyExc_TypeError, "reinterpret(tensor, sizes, strides, storage_offset) takes a Tensor, two tuples, an int");
    return nullptr;
  }
  const at::Tensor& tensor = THPVariable_Unpack(args[0]);
  if (!tensor.has_storage() || tensor.key_set().has_any(not_strided)) {
    PyErr_Format(
        PyExc_TypeError, "reinterpret: a %.200s that is quantized, nested, sparse or wrapped is no plain strided tensor",
        Py_TYPE(args[0])->tp_name);
    return nullptr;
  }
  Sizes sizes, strides;
  if (!read_layout(args[1], args[2], sizes, strides)) return nullptr;
  const long long offset = PyLong_AsLongLong(args[3]);
  if (offset == -1 && PyErr_Occurred()) return nullptr;
  if (offset < 0 || !view_fits(tensor, sizes, strides, offset)) {
    PyErr_Format(
        PyExc_ValueError, "reinterpret: sizes %R, strides %R, offset %R leave the storage", args[1], args[2], args[3]);
    return nullptr;
  }
  auto view =
      at::detail::make_tensor<c10::TensorImpl>(c10::Storage(tensor.storage()), tensor.key_set(), tensor.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return THPVariable_Wrap(std::move(view));
}

bool same_ints(at::IntArrayRef found, PyObject* wanted) {
  if (!PyTuple_Check(wanted) || PyTuple_GET_SIZE(wanted) != static_cast<Py_ssize_t>(found.size())) return false;
  for (size_t i = 0; i < found.size(); ++i) {
    const long long value = PyLong_AsLongLong(PyTuple_GET_ITEM(wanted, i));
    if (value != found[i]) return false;
  }
  return true;
}

PyObject* has_layout(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 4 || !THPDtype_Check(args[3])) {
    PyErr_SetString(PyExc_TypeError, "has_layout(tensor, sizes, strides, dtype) takes an object, two tuples and a torch.dtype");
    return nullptr;
  }
  bool same = false;
  if (is_tensor(args[0])) {
    const at::Tensor& tensor = THPVariable_Unpack(args[0]);
    try {
      same = tensor.scalar_type() == reinterpret_cast<THPDtype*>(args[3])->scalar_type &&
             same_ints(tensor.sizes(), args[1]) && same_ints(tensor.strides(), args[2]) &&
             !tensor.is_neg() && !tensor._is_zerotensor();
    } catch (const std::exception&) {  // no strides, or symbolic ones: Python looks again
      same = false;
    }
  }
  if (PyErr_Occurred()) return nullptr;
  return PyBool_FromLong(same);
}

PyMethodDef launch_functions[] = {
    {"has_layout",
     method<has_layout>(),
     METH_FASTCALL,
     "has_layout(object, sizes, strides, dtype) -> bool: whether it is a tensor of this metadata, its numbers in memory."},
    {"empty_strided",
     method<empty_strided>(),
     METH_FASTCALL,
     "empty_strided(sizes, strides, dtype, device=cpu): an uninitialised tensor, past the dispatcher."},
    {"number_tensor",
     method<number_tensor>(),
     METH_FASTCALL,
     "number_tensor(value, dtype): a number as a tensor of no dimensions, past the dispatcher."},
    {"reinterpret",
     method<reinterpret>(),
     METH_FASTCALL,
     "reinterpret(tensor, sizes, strides, storage_offset): as_strided past dispatcher and autograd."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_launch(PyObject* module) {
  if (ready_kernel() < 0) return -1;
  if (PyModule_AddObjectRef(module, "Kernel", reinterpret_cast<PyObject*>(&kernel_type)) < 0) return -1;
  return PyModule_AddFunctions(module, launch_functions);
}

}  // namespace torchglass
