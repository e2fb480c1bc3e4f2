// Random numbers of PyTorch's generators on GPUs, for generated kernels that draw them (src/torchglass/records/philox.py).
//
//   reserve_philox(where: Tensor | torch.device, numel: int, shift: int, threads: int)
//       -> (seed, offset, shift)
//       Numbers for `numel` elements of the default generator of `where`, which moves on as it does for eager's dropout.
//       Its kernel reads 1 << `shift` elements at once, fewer where the address of a Tensor or their number does not
//       allow it. `threads`: the most that it starts on the GPU that the program was compiled for; RuntimeError on
//       another one. While a CUDA graph of ours is captured, what stands for a seed and an offset (cuda_draws.cpp); of
//       others RuntimeError.
#include "cuda_driver.h"

#include <ATen/Context.h>
#include <ATen/cuda/PhiloxCudaState.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <array>
#include <mutex>

#include <dlfcn.h>

namespace torchglass {
namespace {

constexpr int64_t PHILOX_BLOCK = 256, PHILOX_NUMBERS = 4;  // threads of eager's blocks, numbers that a call makes
constexpr int MULTIPROCESSORS = 16, THREADS_OF_ONE = 39;  // CUdevice_attribute

// CUDAGeneratorImpl::philox_cuda_state, which no header declares where PyTorch has no CUDA: it alone knows of captured
// streams. As a function it takes the generator first.
using StateOf = at::PhiloxCudaState (*)(c10::GeneratorImpl*, uint64_t);

StateOf philox_state_of() {
  static const auto found = [] {
    void* const library = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD);
    void* const symbol =
        library == nullptr ? nullptr : dlsym(library, "_ZN2at17CUDAGeneratorImpl17philox_cuda_stateEm");
    return reinterpret_cast<StateOf>(symbol);
  }();
  return found;
}

// Seed and offset of a generator, which is `increment` further then. Without that function there is no captured stream
// either: the generator refuses to tell its offset.
at::PhiloxCudaState moved_on(const at::Generator& generator, uint64_t increment) {
  c10::GeneratorImpl* const impl = generator.unsafeGetGeneratorImpl();
  const std::lock_guard<std::mutex> lock(impl->mutex_);
  if (const StateOf of = philox_state_of()) return of(impl, increment);
  const at::PhiloxCudaState before(impl->current_seed(), impl->get_offset());
  impl->set_offset(before.offset_.val + increment);
  return before;
}

// The most threads that eager's kernels start on a GPU; 0 where the driver does not tell.
int64_t philox_threads(c10::DeviceIndex device) {
  static std::array<int64_t, 64> known{};  // guarded by the GIL
  int64_t& most = known[static_cast<size_t>(device) % known.size()];
  void* const library = most != 0 ? nullptr : dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return most;
  const auto get = reinterpret_cast<int (*)(int*, int)>(dlsym(library, "cuDeviceGet"));
  const auto ask = reinterpret_cast<int (*)(int*, int, int)>(dlsym(library, "cuDeviceGetAttribute"));
  int number = 0, processors = 0, threads = 0;
  if (get != nullptr && ask != nullptr && get(&number, device) == 0 && ask(&processors, MULTIPROCESSORS, number) == 0 &&
      ask(&threads, THREADS_OF_ONE, number) == 0) {
    most = processors * (threads / PHILOX_BLOCK) * PHILOX_BLOCK;
  }
  return most;
}

// The device, and of a tensor whose address counts that in elements.
bool read_place(PyObject* where, c10::Device& device, uint64_t& address) {
  if (THPDevice_Check(where)) {
    device = reinterpret_cast<THPDevice*>(where)->device;
    return true;
  }
  if (!THPVariable_Check(where)) return false;
  const at::Tensor& tensor = THPVariable_Unpack(where);
  device = tensor.device();
  address = reinterpret_cast<uintptr_t>(tensor.data_ptr()) / tensor.itemsize();
  return true;
}

PyObject* reserve_philox(PyObject*, PyObject* args) {
  PyObject* where = nullptr;
  long long numel = 0, threads = 0;
  int shift = 0;
  if (!PyArg_ParseTuple(args, "OLiL:reserve_philox", &where, &numel, &shift, &threads)) return nullptr;
  c10::Device device(c10::kCUDA);
  uint64_t address = 0;
  if (!read_place(where, device, address) || !device.is_cuda() || shift < 0 || shift > 3 || threads < PHILOX_BLOCK) {
    return PyErr_Format(PyExc_TypeError, "reserve_philox takes what is on a GPU, not %R", where);
  }
  while ((address | static_cast<uint64_t>(numel)) & ((1 << shift) - 1)) --shift;
  at::PhiloxCudaState state;
  if (numel > 0) {
    at::globalContext().lazyInitDevice(c10::kCUDA);
    const c10::OptionalDeviceGuard guard(device);
    const at::Generator& generator = at::globalContext().defaultGenerator(device);
    const int64_t here = philox_threads(generator.device().index());
    if (here != 0 && here != threads) {
      return PyErr_Format(
          PyExc_RuntimeError, "compiled for a GPU whose random numbers %lld threads draw, not %lld as on %s", threads,
          static_cast<long long>(here), generator.device().str().c_str());
    }
    const int64_t started = std::min<int64_t>(threads, (numel - 1) / PHILOX_BLOCK * PHILOX_BLOCK + PHILOX_BLOCK);
    state = moved_on(generator, ((numel - 1) / (PHILOX_NUMBERS * started) + 1) * PHILOX_NUMBERS);
  }
  if (state.captured_ && drawn_kernels() != nullptr) {
    const Ref seed(draw_object({true, 0})), offset(draw_object({false, state.offset_intragraph_}));
    return seed && offset ? Py_BuildValue("OOi", seed.get(), offset.get(), shift) : nullptr;
  }
  if (state.captured_) {
    return PyErr_Format(PyExc_RuntimeError, "numbers of a CUDA graph are known only when it is replayed");
  }
  return Py_BuildValue(
      "LLi", static_cast<long long>(state.seed_.val), static_cast<long long>(state.offset_.val), shift);
}

PyMethodDef philox_functions[] = {
    {"reserve_philox", entry<reserve_philox>, METH_VARARGS,
     "reserve_philox(where, numel, shift, threads) -> (seed, offset, shift)"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_philox(PyObject* module) {
  return PyModule_AddFunctions(module, philox_functions);
}

}  // namespace torchglass
