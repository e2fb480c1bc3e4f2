// A CUDA graph that is replayed, and whose results stay valid: they are evacuated before they are overwritten.
//
//   GraphReplay(graph: torch.cuda.CUDAGraph, executable: int, inputs: list, buffers: tuple, results: tuple,
//               returned: int, geometry: bool, draws: capsule)
//       Made where `graph` has been captured, for the stream that is current. `inputs`, Tensors on its GPU, single
//       numbers on the CPU or None, are what it was captured with; where `buffers` has a Tensor, that stood in an input's place, and is filled from the
//       input of each call. `results` are what was captured: Tensors in the graph's memory, inputs, other objects.
//       Those behind the first `returned` are saved for a backward. `executable`: the CUgraphExec. `draws`: of
//       end_draws, or None for a graph that draws no random numbers: else it moves its generator on. `geometry`: sizes and strides of inputs differ between calls.
//   replay(inputs: list) -> tuple | int
//       The results, the list being emptied; or why the graph is not for this call: the place of the first input that
//       lies elsewhere or otherwise, OTHERS where stream, modes or results that another thread has forbid it, WAITS where what it has
//       saved is still needed.
//   replay.elsewhere(inputs) -> list[int]: all inputs that lie elsewhere.
//   replay.calls, .moved_bytes: how often it was replayed, how many bytes of results were evacuated.
//
// Results are loans: fresh tensors over the graph's own memory. Before it is replayed, each storage that is still held
// is given ordinary memory with the same numbers, by copies on the graph's stream; views, and what autograd has taken
// for `p.grad`, follow, since they read through the storage. What nobody holds costs nothing. Who still holds a result may
// use it on another stream: where a program has others of PyTorch's, copies follow what these have been given by then,
// and what they are given later follows the copies.
#include "cuda_driver.h"
#include "cuda_streams.h"
#include "tensor_facts.h"

#include <ATen/Context.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/complex.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace torchglass {
namespace {

constexpr long OTHERS = -1, WAITS = -2;
constexpr size_t SMALL_COPY = 1 << 20;
constexpr int PATIENCE = 8;  // calls that wait for what is saved, before it is evacuated as well

// What the graph's results lie in, until nobody has a loan of it.
using GraphMemory = std::vector<c10::Storage>;

struct Placed {
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;
  c10::ScalarType dtype = c10::ScalarType::Undefined;

  static Placed of(const at::Tensor& tensor) {
    return {tensor.sizes().vec(), tensor.strides().vec(), tensor.storage_offset(), tensor.scalar_type()};
  }
  bool fits(const at::Tensor& tensor) const {
    return tensor.sizes() == sizes && tensor.strides() == strides && tensor.scalar_type() == dtype;
  }
};

struct ReplayInput {
  bool tensor = false;
  void* address = nullptr;  // where the graph reads it
  at::Tensor buffer{};      // if it is copied there
  bool number = false;      // from the CPU
  size_t bytes = 0;         // of one copy; 0 where its elements have gaps
  Placed placed{};
};

struct Lent {
  void* address;
  size_t bytes;
  bool saved;
  std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> storage{};

  bool held() const { return storage && !storage->expired(); }
};

struct ReplayResult {
  Py_ssize_t input = -1, lent = -1;  // which of the two it is; neither: `object`
  Placed placed{};
  Ref object{};
};

struct GraphReplay {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject* graph;
  PyObject* itself;  // graph.replay of one that draws, else null
  PyObject* draws;   // its capsule
  void *executable, *context;
  c10::Device device;
  std::optional<c10::Stream> stream;
  bool geometry, busy, impatient;
  int waited;
  unsigned long thread;  // whose results were made last
  Py_ssize_t calls, moved_bytes;
  std::vector<ReplayInput> inputs;
  std::vector<Lent> lent;
  std::vector<ReplayResult> results;
  std::shared_ptr<GraphMemory> memory;
};

GraphReplay* as_replay(PyObject* object) { return reinterpret_cast<GraphReplay*>(object); }

bool driver_did(int code) {
  if (code == 0) return true;
  PyErr_Format(PyExc_RuntimeError, "replaying a CUDA graph: CUDA error %d, %s", code, driver_error(code));
  return false;
}

// ------------------------------------------------------------------------------------------------ results

void let_go(void* memory) { delete static_cast<std::shared_ptr<GraphMemory>*>(memory); }

// A fresh storage over the graph's memory.
c10::Storage lend(GraphReplay* self, Lent& lent) {
  c10::DataPtr data(lent.address, new std::shared_ptr<GraphMemory>(self->memory), &let_go, self->device);
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), lent.bytes, std::move(data), c10::GetAllocator(c10::kCUDA), true);
  lent.storage.emplace(storage);
  return c10::Storage(std::move(storage));
}

// A storage that moves out of the graph's memory.
struct Evacuated {
  c10::intrusive_ptr<c10::StorageImpl> storage;
  c10::DataPtr fresh;
  Lent* lent;
};

at::Tensor words_at(void* data, size_t bytes, c10::Device device) {
  const auto count = static_cast<int64_t>((bytes + sizeof(int64_t) - 1) / sizeof(int64_t));
  return at::from_blob(data, {count}, at::TensorOptions().dtype(at::kLong).device(device));
}

// Small ones in one kernel, each up to the end of its last word: blocks of the allocator are whole ones.
bool copy_out(GraphReplay* self, std::vector<Evacuated>& leaving, void* stream) {
  std::vector<at::Tensor> from, to;
  for (Evacuated& one : leaving) {
    if (leaving.size() > 1 && one.lent->bytes <= SMALL_COPY) {
      from.push_back(words_at(one.lent->address, one.lent->bytes, self->device));
      to.push_back(words_at(one.fresh.get(), one.lent->bytes, self->device));
    } else if (!driver_did(driver().copy(
                   reinterpret_cast<uintptr_t>(one.fresh.get()), reinterpret_cast<uintptr_t>(one.lent->address),
                   one.lent->bytes, stream))) {
      return false;
    }
  }
  if (!from.empty()) at::_foreach_copy_(to, from, /*non_blocking=*/true);
  return true;
}

// Ordinary memory for what somebody still holds. Nothing is lost where there is none: that is thrown before.
bool evacuate(GraphReplay* self, void* stream) {
  std::vector<Evacuated> leaving;
  for (Lent& lent : self->lent) {
    auto storage = lent.storage ? lent.storage->lock() : c10::intrusive_ptr<c10::StorageImpl>();
    if (!storage || lent.bytes == 0 || storage->data() != lent.address) continue;  // or a program has set another memory
    leaving.push_back({std::move(storage), c10::GetAllocator(c10::kCUDA)->allocate(lent.bytes), &lent});
  }
  if (leaving.empty()) return true;
  Streams& streams = streams_of(self->device);
  const bool shared = streams.others();
  if (shared) streams.before(*self->stream);  // which may be reading and writing what is moved
  if (!copy_out(self, leaving, stream)) return false;
  if (shared) streams.after(*self->stream);
  for (Evacuated& one : leaving) {
    one.storage->set_data_ptr(std::move(one.fresh));
    one.lent->storage.reset();
    self->moved_bytes += static_cast<Py_ssize_t>(one.lent->bytes);
  }
  return true;
}

PyObject* tensor_over(const c10::Storage& storage, const Placed& placed) {
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CUDA), c10::scalarTypeToTypeMeta(placed.dtype));
  made.unsafeGetTensorImpl()->set_sizes_and_strides(placed.sizes, placed.strides, placed.offset);
  return THPVariable_Wrap(std::move(made));
}

PyObject* results_of(GraphReplay* self, PyObject* inputs) {
  std::vector<c10::Storage> storages;
  storages.reserve(self->lent.size());
  for (Lent& lent : self->lent) storages.push_back(lend(self, lent));
  Ref results(PyTuple_New(static_cast<Py_ssize_t>(self->results.size())));
  for (size_t i = 0; results && i < self->results.size(); ++i) {
    const ReplayResult& result = self->results[i];
    PyObject* made = result.lent >= 0    ? tensor_over(storages[static_cast<size_t>(result.lent)], result.placed)
                     : result.input >= 0 ? Py_NewRef(PyList_GET_ITEM(inputs, result.input))
                                         : Py_NewRef(result.object.get());
    if (made == nullptr) return nullptr;
    PyTuple_SET_ITEM(results.get(), static_cast<Py_ssize_t>(i), made);
  }
  return results.release();
}

// ------------------------------------------------------------------------------------------------ a call

bool is_aligned(const void* address) { return (reinterpret_cast<uintptr_t>(address) & 15) == 0; }

bool lies_there(const GraphReplay* self, const ReplayInput& input, PyObject* value) {
  if (!input.tensor) return value == Py_None;
  if (!is_tensor(value)) return false;
  const at::Tensor& tensor = THPVariable_Unpack(value);
  if (!tensor.defined() || !tensor.has_storage()) return false;
  if (input.number) return tensor.device().is_cpu() && input.placed.fits(tensor);
  if (tensor.device() != self->device) return false;
  if (input.buffer.defined()) {  // where it is read at has a say in which numbers are drawn for it
    return input.placed.fits(tensor) && (self->itself == nullptr || is_aligned(tensor.data_ptr()));
  }
  return tensor.data_ptr() == input.address && (!self->geometry || input.placed.fits(tensor));
}

bool may_replay(GraphReplay* self) {
  if (self->busy || c10::impl::TorchDispatchModeTLS::any_modes_set()) return false;
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
  if (guard.getStream(self->device) != *self->stream) return false;
  return !is_captured(guard.getStreamNativeHandle(*self->stream));
}

// Whether another thread holds results: it may be launching what reads them, at the addresses that they have now.
bool is_anothers(const GraphReplay* self) {
  if (self->thread == PyThread_get_thread_ident()) return false;
  return std::any_of(self->lent.begin(), self->lent.end(), [](const Lent& lent) { return lent.held(); });
}

// Whether what was saved is held still. A backward may free it soon, so that a call or two run without the graph.
bool waits(GraphReplay* self) {
  if (self->impatient) return false;
  for (const Lent& lent : self->lent) {
    if (!lent.saved || !lent.held()) continue;
    self->impatient = ++self->waited > PATIENCE;
    return !self->impatient;
  }
  self->waited = 0;
  return false;
}

bool fill_buffers_of(GraphReplay* self, PyObject* inputs, void* stream) {
  for (size_t i = 0; i < self->inputs.size(); ++i) {
    ReplayInput& input = self->inputs[i];
    if (!input.buffer.defined() || input.buffer.numel() == 0) continue;
    const at::Tensor& tensor = THPVariable_Unpack(PyList_GET_ITEM(inputs, static_cast<Py_ssize_t>(i)));
    if (input.number) {  // from the stack: from pinned memory the GPU would read it later
      char number[sizeof(c10::complex<double>)];
      std::memcpy(number, tensor.data_ptr(), input.bytes);
      const auto to = reinterpret_cast<uintptr_t>(input.address);
      if (!driver_did(driver().copy_from_host(to, number, input.bytes, stream))) return false;
      continue;
    }
    if (input.bytes == 0) {
      input.buffer.copy_(tensor, /*non_blocking=*/true);
      continue;
    }
    const auto to = reinterpret_cast<uintptr_t>(input.address), from = reinterpret_cast<uintptr_t>(tensor.data_ptr());
    if (!driver_did(driver().copy(to, from, input.bytes, stream))) return false;
  }
  return true;
}

// By PyTorch, which moves the generator on; our kernels before it.
bool launch_drawing(GraphReplay* self) {
  at::Generator generator = at::globalContext().defaultGenerator(self->device);
  std::vector<DrawnKernel>* const kernels = draws_in(self->draws);
  uint64_t seed = 0, offset = 0;
  {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    seed = generator.current_seed(), offset = generator.get_offset();
  }
  return kernels != nullptr && driver_did(draw_for(self->executable, *kernels, seed, offset)) &&
      static_cast<bool>(Ref(PyObject_CallNoArgs(self->itself)));
}

bool launch_graph(GraphReplay* self, void* stream) {
  if (self->itself != nullptr) return launch_drawing(self);
  int code = 0;
  without_gil([&] { code = driver().launch_graph(self->executable, stream); });
  return driver_did(code);
}

struct Busy {
  explicit Busy(GraphReplay* replay) : replay_(replay) { replay_->busy = true; }
  ~Busy() { replay_->busy = false; }
  GraphReplay* replay_;
};

PyObject* replay_call(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  GraphReplay* self = as_replay(object);
  const bool one = PyVectorcall_NARGS(nargsf) == 1 && (kwnames == nullptr || PyTuple_GET_SIZE(kwnames) == 0);
  if (!one || !PyList_Check(args[0]) || PyList_GET_SIZE(args[0]) != static_cast<Py_ssize_t>(self->inputs.size())) {
    return PyErr_Format(PyExc_TypeError, "this CUDA graph takes a list of %zd tensors", self->inputs.size());
  }
  PyObject* const inputs = args[0];
  if (!may_replay(self)) return PyLong_FromLong(OTHERS);
  for (size_t i = 0; i < self->inputs.size(); ++i) {
    if (!lies_there(self, self->inputs[i], PyList_GET_ITEM(inputs, static_cast<Py_ssize_t>(i)))) {
      return PyLong_FromSize_t(i);
    }
  }
  if (is_anothers(self)) return PyLong_FromLong(OTHERS);
  if (waits(self)) return PyLong_FromLong(WAITS);
  const Ref alive = Ref::borrow(object);
  const Busy busy(self);
  const c10::DeviceGuard guard(self->device);
  const Current current(self->context);
  void* const stream = c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getStreamNativeHandle(*self->stream);
  // results of the call before may be inputs of this one: they are moved before they are read
  if (!evacuate(self, stream) || !fill_buffers_of(self, inputs, stream) || !launch_graph(self, stream)) return nullptr;
  ++self->calls;
  self->thread = PyThread_get_thread_ident();
  PyObject* const results = results_of(self, inputs);
  if (results != nullptr && PyList_SetSlice(inputs, 0, PyList_GET_SIZE(inputs), nullptr) < 0) {
    Py_DECREF(results);
    return nullptr;
  }
  return results;
}

PyObject* replay_elsewhere(PyObject* object, PyObject* inputs) {
  GraphReplay* self = as_replay(object);
  if (!PyList_Check(inputs) || PyList_GET_SIZE(inputs) != static_cast<Py_ssize_t>(self->inputs.size())) {
    return PyErr_Format(PyExc_TypeError, "this CUDA graph takes a list of %zd tensors", self->inputs.size());
  }
  Ref places(PyList_New(0));
  for (size_t i = 0; places && i < self->inputs.size(); ++i) {
    if (lies_there(self, self->inputs[i], PyList_GET_ITEM(inputs, static_cast<Py_ssize_t>(i)))) continue;
    const Ref place(PyLong_FromSize_t(i));
    if (!place || PyList_Append(places.get(), place.get()) < 0) return nullptr;
  }
  return places.release();
}

// ------------------------------------------------------------------------------------------------ making one

// The bytes from a tensor's first element to its last.
size_t extent(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  return static_cast<size_t>(last + 1) * tensor.itemsize();
}

bool read_input(GraphReplay* self, PyObject* value, PyObject* buffer) {
  ReplayInput input;
  if (value != Py_None) {
    if (!is_tensor(value) || (buffer != Py_None && !is_tensor(buffer))) {
      PyErr_SetString(PyExc_TypeError, "GraphReplay: inputs and buffers are Tensors or None");
      return false;
    }
    const at::Tensor& tensor = THPVariable_Unpack(value);
    const bool copied = buffer != Py_None;
    const at::Tensor& read = copied ? THPVariable_Unpack(buffer) : tensor;
    input.number = copied && tensor.device().is_cpu() && tensor.numel() == 1;
    if (!read.device().is_cuda() || !(tensor.device().is_cuda() || input.number) || !Placed::of(tensor).fits(read)) {
      PyErr_SetString(PyExc_ValueError, "GraphReplay: an input is not on a GPU, or lies otherwise than its buffer");
      return false;
    }
    input.tensor = true;
    input.address = read.data_ptr();
    input.placed = Placed::of(tensor);
    if (copied) {
      input.buffer = read;
      input.bytes = extent(read) <= static_cast<size_t>(read.nbytes()) ? extent(read) : 0;
    }
  }
  self->inputs.push_back(std::move(input));
  return true;
}

// The place of the captured input whose memory a tensor lies in; -1 if it is none.
Py_ssize_t input_of(PyObject* captured, const at::Tensor& tensor) {
  for (Py_ssize_t k = 0; k < PyList_GET_SIZE(captured); ++k) {
    PyObject* const value = PyList_GET_ITEM(captured, k);
    if (is_tensor(value) && THPVariable_Unpack(value).storage().is_alias_of(tensor.storage())) return k;
  }
  return -1;
}

Py_ssize_t lent_of(GraphReplay* self, const c10::Storage& storage, bool saved) {
  for (size_t k = 0; k < self->memory->size(); ++k) {
    if (!(*self->memory)[k].is_alias_of(storage)) continue;
    self->lent[k].saved |= saved;
    return static_cast<Py_ssize_t>(k);
  }
  self->memory->push_back(storage);
  self->lent.push_back({storage.mutable_data(), storage.nbytes(), saved});
  return static_cast<Py_ssize_t>(self->lent.size()) - 1;
}

bool read_result(GraphReplay* self, PyObject* captured, PyObject* value, bool saved) {
  ReplayResult result;
  if (value == Py_None || PyLong_Check(value)) {
    result.object = Ref::borrow(value);
  } else if (!is_tensor(value)) {
    PyErr_Format(PyExc_TypeError, "a result is %.100s", Py_TYPE(value)->tp_name);
    return false;
  } else {
    const at::Tensor& tensor = THPVariable_Unpack(value);
    if (tensor.device() != self->device || !tensor.has_storage()) {
      PyErr_Format(PyExc_ValueError, "a result is on %s", tensor.device().str().c_str());
      return false;
    }
    result.placed = Placed::of(tensor);
    result.input = input_of(captured, tensor);
    if (result.input >= 0) {
      const at::Tensor& input = THPVariable_Unpack(PyList_GET_ITEM(captured, result.input));
      if (!result.placed.fits(input) || tensor.storage_offset() != input.storage_offset()) {
        PyErr_SetString(PyExc_ValueError, "a result is a part of an input");
        return false;
      }
    } else {
      result.lent = lent_of(self, tensor.storage(), saved);
    }
  }
  self->results.push_back(std::move(result));
  return true;
}

bool find_device(GraphReplay* self, PyObject* captured) {
  for (Py_ssize_t k = 0; k < PyList_GET_SIZE(captured); ++k) {
    PyObject* const value = PyList_GET_ITEM(captured, k);
    if (!is_tensor(value) || !THPVariable_Unpack(value).device().is_cuda()) continue;
    self->device = THPVariable_Unpack(value).device();
    int number = 0;
    return driver_did(driver().get_device(&number, self->device.index())) &&
        driver_did(driver().retain_context(&self->context, number));
  }
  PyErr_SetString(PyExc_ValueError, "GraphReplay: no input is on a GPU");
  return false;
}

PyObject* replay_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"graph", "executable", "inputs", "buffers", "results", "returned", "geometry", "draws", nullptr};
  PyObject *graph = nullptr, *inputs = nullptr, *buffers = nullptr, *results = nullptr, *draws = nullptr;
  unsigned long long executable = 0;
  Py_ssize_t returned = 0;
  int geometry = 0;
  if (!PyArg_ParseTupleAndKeywords(
          args, kwargs, "OKO!O!O!npO:GraphReplay", const_cast<char**>(names), &graph, &executable, &PyList_Type, &inputs,
          &PyTuple_Type, &buffers, &PyTuple_Type, &results, &returned, &geometry, &draws)) {
    return nullptr;
  }
  if (!driver().complete || PyList_GET_SIZE(inputs) != PyTuple_GET_SIZE(buffers)) {
    PyErr_SetString(PyExc_ValueError, "GraphReplay needs a GPU's driver, and a buffer or None for each input");
    return nullptr;
  }
  Ref made(type->tp_alloc(type, 0));
  if (!made) return nullptr;
  auto* self = as_replay(made.get());
  self->vectorcall = entry<replay_call>;
  new (&self->device) c10::Device(c10::kCUDA);
  new (&self->stream) std::optional<c10::Stream>();
  new (&self->inputs) std::vector<ReplayInput>();
  new (&self->lent) std::vector<Lent>();
  new (&self->results) std::vector<ReplayResult>();
  new (&self->memory) std::shared_ptr<GraphMemory>(std::make_shared<GraphMemory>());
  self->graph = Py_NewRef(graph);
  self->executable = reinterpret_cast<void*>(executable);
  self->geometry = geometry != 0;
  self->draws = Py_NewRef(draws);
  if (draws != Py_None && (self->itself = PyObject_GetAttrString(graph, "replay")) == nullptr) return nullptr;
  const Ref captured(PyList_GetSlice(inputs, 0, PyList_GET_SIZE(inputs)));  // with buffers where these stood
  if (!captured) return nullptr;
  for (Py_ssize_t k = 0; k < PyList_GET_SIZE(inputs); ++k) {
    PyObject* const buffer = PyTuple_GET_ITEM(buffers, k);
    if (!read_input(self, PyList_GET_ITEM(inputs, k), buffer)) return nullptr;
    if (buffer != Py_None && PyList_SetItem(captured.get(), k, Py_NewRef(buffer)) < 0) return nullptr;
  }
  if (!find_device(self, captured.get())) return nullptr;
  self->stream = c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getStream(self->device);
  streams_of(self->device);  // from now on it is seen who takes some
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(results); ++k) {
    if (!read_result(self, captured.get(), PyTuple_GET_ITEM(results, k), k >= returned)) return nullptr;
  }
  return made.release();
}

// ------------------------------------------------------------------------------------------------ the Python type

int replay_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(as_replay(object)->graph);
  Py_VISIT(as_replay(object)->itself);
  return 0;
}

int replay_clear(PyObject* object) {
  Py_CLEAR(as_replay(object)->itself);
  Py_CLEAR(as_replay(object)->draws);
  Py_CLEAR(as_replay(object)->graph);
  return 0;
}

// The graph goes first: its memory is the pool's, which outlives it as long as somebody has a loan.
void replay_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  replay_clear(object);
  GraphReplay* self = as_replay(object);
  self->results.~vector();
  self->lent.~vector();
  self->inputs.~vector();
  self->memory.~shared_ptr();
  Py_TYPE(object)->tp_free(object);
}

PyObject* replay_bytes(PyObject* object, void*) {
  size_t bytes = 0;
  for (const Lent& lent : as_replay(object)->lent) bytes += lent.bytes;
  for (const ReplayInput& input : as_replay(object)->inputs) bytes += input.buffer.defined() ? input.buffer.nbytes() : 0;
  return PyLong_FromSize_t(bytes);
}

PyMemberDef replay_members[] = {
    {"calls", T_PYSSIZET, offsetof(GraphReplay, calls), READONLY, "how often it was replayed"},
    {"moved_bytes", T_PYSSIZET, offsetof(GraphReplay, moved_bytes), READONLY, "of results that were evacuated"},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef replay_getset[] = {
    {"bytes", entry<replay_bytes>, nullptr, "of results and copied inputs, which it keeps", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMethodDef replay_methods[] = {
    {"elsewhere", method<replay_elsewhere>(), METH_O, "elsewhere(inputs) -> list[int]: the inputs that lie elsewhere."},
    {nullptr, nullptr, 0, nullptr},
};

PyTypeObject replay_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

int ready_replay() {
  replay_type.tp_name = "torchglass._native.GraphReplay";
  replay_type.tp_doc = "A captured CUDA graph whose results stay valid: cuda_replay.cpp.";
  replay_type.tp_basicsize = sizeof(GraphReplay);
  replay_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL;
  replay_type.tp_vectorcall_offset = offsetof(GraphReplay, vectorcall);
  replay_type.tp_call = PyVectorcall_Call;
  replay_type.tp_new = entry<replay_new>;
  replay_type.tp_dealloc = quiet_entry<replay_dealloc>;
  replay_type.tp_traverse = quiet_entry<replay_traverse>;
  replay_type.tp_clear = entry<replay_clear>;
  replay_type.tp_members = replay_members;
  replay_type.tp_getset = replay_getset;
  replay_type.tp_methods = replay_methods;
  return PyType_Ready(&replay_type);
}

}  // namespace

int add_cuda_replay(PyObject* module) {
  if (ready_replay() < 0) return -1;
  return PyModule_AddObjectRef(module, "GraphReplay", reinterpret_cast<PyObject*>(&replay_type));
}

}  // namespace torchglass
