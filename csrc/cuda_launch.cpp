// Triton's kernels, started from generated wrappers.
//
//   CudaKernel(cubin: bytes, function: str, name: str, signature: str, blocks: tuple[int, ...], warps: int, shared: int,
//              unaligned: Callable[[], CudaKernel] | None = None) -> callable
//       kernel(*buffers, *sizes, points=n) -> None. `function` of the machine code `cubin` is started on the current
//       stream of the GPU that the buffers, Tensors, are on. `signature` names the arguments' types as Triton's
//       compiler for ahead of time does, "*fp32:16 *bf16 i32": pointers first, those with ":16" to addresses divisible
//       by 16. Where one is not, what `unaligned()` returns is called in its place. `points`: of each axis of the grid,
//       a number or a tuple of them, of which every program has `blocks`. `warps` of a program, and `shared` bytes.
//       TypeError names kernel and argument for anything else; RuntimeError with what the driver says.
//       .registers, .spilled: of a thread, and bytes of its memory; None before it is loaded.
//
// Machine code stays loaded for the life of the process, once for equal code and device: a CUDA graph that a program
// has captured holds functions, and nobody tells when it is gone.
#include "cuda_driver.h"
#include "memory.h"
#include "tensor_facts.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace torchglass {
namespace {

// ------------------------------------------------------------------------------------------------ the driver

constexpr int FUNCTION_LOCAL_BYTES = 3, FUNCTION_REGISTERS = 4, FUNCTION_MOST_SHARED = 8;  // CUfunction_attribute
constexpr int SHARED_UNASKED = 48 << 10;  // bytes; more must be asked for

// Whether the driver has done it; else RuntimeError says which kernel, and why.
bool succeeded(int code, PyObject* name) {
  if (code == 0) return true;
  PyErr_Format(PyExc_RuntimeError, "kernel %U: CUDA error %d, %s", name, code, driver_error(code));
  return false;
}

// ------------------------------------------------------------------------------------------------ machine code

struct Loaded {
  c10::DeviceIndex device;
  void *context, *function;
  int registers, spilled;
};

// One function of a cubin, on the devices where it has run.
struct Code {
  std::string cubin, function;
  std::vector<Loaded> loaded{};
};

Code* code_of(const char* cubin, size_t bytes, const char* function) {
  static std::map<std::pair<std::string, std::string>, std::unique_ptr<Code>> known;  // never emptied, see above
  auto& code = known[{std::string(cubin, bytes), function}];
  if (!code) code = std::make_unique<Code>(Code{std::string(cubin, bytes), function});
  return code.get();
}

// The function on a device, null with an exception set where it cannot be loaded.
const Loaded* loaded_on(Code& code, c10::DeviceIndex device, int shared, PyObject* name) {
  for (const Loaded& one : code.loaded) {
    if (one.device == device) return &one;
  }
  const Driver& cuda = driver();
  if (!cuda.complete) {
    PyErr_Format(PyExc_RuntimeError, "kernel %U: there is no driver of a GPU (libcuda.so.1)", name);
    return nullptr;
  }
  int number = 0, registers = 0, spilled = 0;
  void *context = nullptr, *module = nullptr, *function = nullptr;
  if (!succeeded(cuda.get_device(&number, device), name) ||
      !succeeded(cuda.retain_context(&context, number), name)) {
    return nullptr;
  }
  const Current current(context);
  if (!succeeded(cuda.load(&module, code.cubin.data()), name) ||
      !succeeded(cuda.find(&function, module, code.function.c_str()), name) ||
      !succeeded(cuda.attribute(&registers, FUNCTION_REGISTERS, function), name) ||
      !succeeded(cuda.attribute(&spilled, FUNCTION_LOCAL_BYTES, function), name)) {
    return nullptr;
  }
  if (shared > SHARED_UNASKED && !succeeded(cuda.set_attribute(function, FUNCTION_MOST_SHARED, shared), name)) {
    return nullptr;
  }
  code.loaded.push_back({device, context, function, registers, spilled});
  return &code.loaded.back();
}

// ------------------------------------------------------------------------------------------------ CudaKernel

constexpr size_t MOST_ARGUMENTS = 128;
constexpr size_t SCRATCH = 2;  // pointers that Triton's kernels take after their own arguments: to none here
constexpr int64_t GRID_LIMITS[] = {(int64_t{1} << 31) - 1, 65535, 65535};

struct CudaKernel {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  Code* code;
  size_t buffers, sizes, axes;
  uint64_t aligned[MOST_ARGUMENTS / 64];  // bits of the buffers that are taken for aligned
  int64_t blocks[3];
  int warps, shared;
  PyObject *name, *unaligned, *instead;  // `instead` is what `unaligned` made
};

bool is_aligned_argument(const CudaKernel* self, size_t index) {
  return self->aligned[index / 64] >> (index % 64) & 1;
}

// Fills the pointers, and the device that all buffers are on.
bool fill_buffers(CudaKernel* self, PyObject* const* args, void** values, c10::Device& device, uintptr_t& addresses) {
  for (size_t i = 0; i < self->buffers; ++i) {
    if (!is_tensor(args[i])) {
      PyErr_Format(
          PyExc_TypeError, "kernel %U: argument %zd must be a Tensor, not %.200s", self->name, i,
          Py_TYPE(args[i])->tp_name);
      return false;
    }
    const at::Tensor& tensor = THPVariable_Unpack(args[i]);
    const bool known = tensor.defined() && tensor.device().type() == c10::DeviceType::CUDA;
    if (!known || (i > 0 && tensor.device() != device)) {
      PyErr_Format(
          PyExc_TypeError, "kernel %U: argument %zd is on %s, not on %s", self->name, i,
          tensor.defined() ? tensor.device().str().c_str() : "no device", i > 0 ? device.str().c_str() : "a GPU");
      return false;
    }
    device = tensor.device();
    try {
      values[i] = tensor.data_ptr();
    } catch (const std::exception&) {  // a fake, sparse or functorch tensor
      values[i] = nullptr;
    }
    if (values[i] == nullptr && (!tensor.has_storage() || tensor.numel() != 0)) {
      PyErr_Format(PyExc_TypeError, "kernel %U: argument %zd is a tensor without data", self->name, i);
      return false;
    }
    if (is_aligned_argument(self, i)) addresses |= reinterpret_cast<uintptr_t>(values[i]);
  }
  return true;
}

using Draws = std::vector<std::pair<size_t, Draw>>;

bool fill_sizes(CudaKernel* self, PyObject* const* args, void** values, Draws& draws) {
  for (size_t i = self->buffers; i < self->buffers + self->sizes; ++i) {
    if (const Draw* const draw = draw_of(args[i])) {
      draws.push_back({i, *draw});
      values[i] = nullptr;
      continue;
    }
    const long long value = PyLong_AsLongLong(args[i]);
    if (value == -1 && PyErr_Occurred()) return false;
    values[i] = reinterpret_cast<void*>(static_cast<intptr_t>(value));
  }
  return true;
}

// The programs along each axis of the grid.
bool fill_grid(CudaKernel* self, PyObject* points, unsigned* grid) {
  const bool one = points != nullptr && PyLong_Check(points);
  const size_t given = points == nullptr ? 0 : one ? 1 : PyTuple_Check(points) ? PyTuple_GET_SIZE(points) : 4;
  if (given != self->axes) {
    PyErr_Format(
        PyExc_TypeError, "kernel %U: points must be %zd ints, not %R", self->name, self->axes,
        points == nullptr ? Py_None : points);
    return false;
  }
  for (size_t k = 0; k < given; ++k) {
    const long long count = PyLong_AsLongLong(one ? points : PyTuple_GET_ITEM(points, k));
    if (count == -1 && PyErr_Occurred()) return false;
    const int64_t programs = count <= 0 ? 0 : (count - 1) / self->blocks[k] + 1;
    if (programs > GRID_LIMITS[k]) {
      PyErr_Format(PyExc_ValueError, "kernel %U: %lld points are more than a grid has", self->name, count);
      return false;
    }
    grid[k] = static_cast<unsigned>(programs);
  }
  return true;
}

PyObject* call_instead(CudaKernel* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  if (self->instead == nullptr) {
    Ref made(PyObject_CallNoArgs(self->unaligned));
    if (!made) return nullptr;
    if (self->instead == nullptr) self->instead = made.release();  // another thread may have been here
  }
  const Ref instead = Ref::borrow(self->instead);
  return PyObject_Vectorcall(instead.get(), args, nargsf, kwnames);
}

// Leaves a kernel that has just been captured for those who replay it.
bool note_draws(
    CudaKernel* self, const Loaded& on, const unsigned* grid, void* const* values, size_t count, const Draws& draws,
    void* stream) {
  std::vector<DrawnKernel>* const noted = drawn_kernels();
  int status = 0;
  uint64_t capture = 0;
  void* graph = nullptr;
  void* const* last = nullptr;
  size_t lasts = 0;
  if (noted == nullptr || !driver().patches ||
      !succeeded(driver().capture_info(stream, &status, &capture, &graph, &last, &lasts), self->name) || lasts != 1) {
    if (!PyErr_Occurred()) PyErr_Format(PyExc_RuntimeError, "kernel %U: its random numbers are not known yet", self->name);
    return false;
  }
  DrawnKernel kernel{last[0], on.function, {grid[0], grid[1], grid[2]}, 32u * self->warps, static_cast<unsigned>(self->shared), {values, values + count}, draws};
  kernel.arguments.resize(count + SCRATCH, nullptr);
  noted->push_back(std::move(kernel));
  return true;
}

PyObject* cuda_kernel_call(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  auto* self = reinterpret_cast<CudaKernel*>(object);
  const size_t count = PyVectorcall_NARGS(nargsf), named = kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames);
  if (count != self->buffers + self->sizes || named > 1 ||
      (named == 1 && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, 0), "points") != 0)) {
    PyErr_Format(
        PyExc_TypeError, "kernel %U takes %zd tensors, %zd ints and points=", self->name, self->buffers, self->sizes);
    return nullptr;
  }
  void* values[MOST_ARGUMENTS];
  unsigned grid[3] = {1, 1, 1};
  c10::Device device(c10::DeviceType::CUDA);
  uintptr_t addresses = 0;
  Draws draws;
  if (!fill_buffers(self, args, values, device, addresses) || !fill_sizes(self, args, values, draws) ||
      !fill_grid(self, named ? args[count] : nullptr, grid)) {
    return nullptr;
  }
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) Py_RETURN_NONE;
  if (addresses & 15) return call_instead(self, args, nargsf, kwnames);
  const Loaded* found = loaded_on(*self->code, device.index(), self->shared, self->name);
  if (found == nullptr) return nullptr;
  const Loaded on = *found;
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
  void* const stream = guard.getStreamNativeHandle(guard.getStream(device));
  void* none = nullptr;
  void* parameters[MOST_ARGUMENTS + SCRATCH];
  for (size_t i = 0; i < count; ++i) parameters[i] = &values[i];
  std::fill_n(parameters + count, SCRATCH, &none);
  int code = 0;
  without_gil([&] {
    const Current current(on.context);
    code = driver().launch(
        on.function, grid[0], grid[1], grid[2], 32 * self->warps, 1, 1, self->shared, stream, parameters, nullptr);
  });
  if (!succeeded(code, self->name) || (!draws.empty() && !note_draws(self, on, grid, values, count, draws, stream))) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

// Reads "*fp32:16 *bf16 i32" into counts of buffers and sizes, and which are aligned.
bool read_signature(CudaKernel* self, const char* text) {
  size_t index = 0;
  for (const char* begin = text; *begin != '\0';) {
    const size_t length = std::strcspn(begin, " ");
    const std::string type(begin, length);
    begin += length + (begin[length] == ' ');
    if (type.empty()) continue;
    if (index == MOST_ARGUMENTS || (type[0] == '*' && self->sizes > 0)) {
      PyErr_Format(PyExc_ValueError, "kernel %U: pointers come first, and at most %zd arguments", self->name, MOST_ARGUMENTS);
      return false;
    }
    if (type[0] == '*') {
      ++self->buffers;
      if (type.size() > 3 && type.compare(type.size() - 3, 3, ":16") == 0) {
        self->aligned[index / 64] |= uint64_t{1} << (index % 64);
      }
    } else if (type == "i32" || type == "i64") {
      ++self->sizes;
    } else {
      PyErr_Format(PyExc_ValueError, "kernel %U: arguments are pointers, i32 and i64, not %s", self->name, type.c_str());
      return false;
    }
    ++index;
  }
  return true;
}

bool read_blocks(CudaKernel* self, PyObject* blocks) {
  self->axes = PyTuple_GET_SIZE(blocks);
  if (self->axes > 3) {
    PyErr_Format(PyExc_ValueError, "kernel %U: a grid has at most 3 axes", self->name);
    return false;
  }
  for (size_t k = 0; k < self->axes; ++k) {
    self->blocks[k] = PyLong_AsLongLong(PyTuple_GET_ITEM(blocks, k));
    if (self->blocks[k] > 0) continue;
    if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "kernel %U: blocks must be positive", self->name);
    return false;
  }
  return true;
}

PyObject* cuda_kernel_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"cubin", "function", "name", "signature", "blocks", "warps", "shared", "unaligned", nullptr};
  const char *cubin = nullptr, *function = nullptr, *signature = nullptr;
  Py_ssize_t bytes = 0;
  PyObject *name = nullptr, *blocks = nullptr, *unaligned = Py_None;
  int warps = 0, shared = 0;
  if (!PyArg_ParseTupleAndKeywords(
          args, kwargs, "y#sUsO!ii|O:CudaKernel", const_cast<char**>(names), &cubin, &bytes, &function, &name,
          &signature, &PyTuple_Type, &blocks, &warps, &shared, &unaligned)) {
    return nullptr;
  }
  if (warps < 1 || warps > 32 || shared < 0) {
    return PyErr_Format(PyExc_ValueError, "kernel %U: %d warps and %d bytes of shared memory", name, warps, shared);
  }
  Ref made(type->tp_alloc(type, 0));
  if (!made) return nullptr;
  auto* self = reinterpret_cast<CudaKernel*>(made.get());
  self->vectorcall = entry<cuda_kernel_call>;
  self->name = Py_NewRef(name);
  self->unaligned = Py_NewRef(unaligned);
  self->warps = warps;
  self->shared = shared;
  if (!read_signature(self, signature) || !read_blocks(self, blocks)) return nullptr;
  self->code = code_of(cubin, bytes, function);
  return made.release();
}

int cuda_kernel_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(reinterpret_cast<CudaKernel*>(object)->unaligned);
  Py_VISIT(reinterpret_cast<CudaKernel*>(object)->instead);
  return 0;
}

int cuda_kernel_clear(PyObject* object) {
  Py_CLEAR(reinterpret_cast<CudaKernel*>(object)->unaligned);
  Py_CLEAR(reinterpret_cast<CudaKernel*>(object)->instead);
  return 0;
}

void cuda_kernel_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  cuda_kernel_clear(object);
  Py_CLEAR(reinterpret_cast<CudaKernel*>(object)->name);
  Py_TYPE(object)->tp_free(object);
}

PyObject* cuda_kernel_repr(PyObject* object) {
  return PyUnicode_FromFormat("<CudaKernel %U>", reinterpret_cast<CudaKernel*>(object)->name);
}

template <int Loaded::* field>
PyObject* of_loaded(PyObject* object, void*) {
  const Code* code = reinterpret_cast<CudaKernel*>(object)->code;
  if (code->loaded.empty()) Py_RETURN_NONE;
  return PyLong_FromLong(code->loaded.front().*field);
}

PyMemberDef cuda_kernel_members[] = {
    {"__name__", T_OBJECT, offsetof(CudaKernel, name), READONLY, "the kernel's name"},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef cuda_kernel_getset[] = {
    {"registers", entry<of_loaded<&Loaded::registers>>, nullptr, "of a thread; None before it is loaded", nullptr},
    {"spilled", entry<of_loaded<&Loaded::spilled>>, nullptr, "bytes of a thread's own memory; None before", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyTypeObject cuda_kernel_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

int ready_cuda_kernel() {
  cuda_kernel_type.tp_name = "torchglass._native.CudaKernel";
  cuda_kernel_type.tp_doc =
      "CudaKernel(cubin, function, name, signature, blocks, warps, shared, unaligned=None): machine code for a GPU, "
      "called with tensors, ints and points=.";
  cuda_kernel_type.tp_basicsize = sizeof(CudaKernel);
  cuda_kernel_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL;
  cuda_kernel_type.tp_vectorcall_offset = offsetof(CudaKernel, vectorcall);
  cuda_kernel_type.tp_call = PyVectorcall_Call;
  cuda_kernel_type.tp_new = entry<cuda_kernel_new>;
  cuda_kernel_type.tp_dealloc = quiet_entry<cuda_kernel_dealloc>;
  cuda_kernel_type.tp_traverse = quiet_entry<cuda_kernel_traverse>;
  cuda_kernel_type.tp_clear = entry<cuda_kernel_clear>;
  cuda_kernel_type.tp_repr = entry<cuda_kernel_repr>;
  cuda_kernel_type.tp_members = cuda_kernel_members;
  cuda_kernel_type.tp_getset = cuda_kernel_getset;
  return PyType_Ready(&cuda_kernel_type);
}

}  // namespace

int add_cuda_launch(PyObject* module) {
  if (ready_cuda_kernel() < 0) return -1;
  return PyModule_AddObjectRef(module, "CudaKernel", reinterpret_cast<PyObject*>(&cuda_kernel_type));
}

}  // namespace torchglass
