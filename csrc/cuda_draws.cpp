// Random numbers in captured CUDA graphs: kernels get a seed and an offset as arguments, which only a replay knows.
//
//   begin_draws(): kernels that are captured from now on, with what reserve_philox gives for a captured stream, are noted.
//   end_draws() -> capsule: those kernels, for GraphReplay, which sets these arguments before each replay.
#include "cuda_driver.h"

#include <memory>

namespace torchglass {
namespace {

struct DrawObject {
  PyObject_HEAD
  Draw draw;
};

PyTypeObject draw_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
std::unique_ptr<std::vector<DrawnKernel>> drawn;  // one capture at a time: runtime/replay.py

constexpr const char* DRAWS = "torchglass.draws";

// CUDA_KERNEL_NODE_PARAMS of CUDA 12 and later
struct KernelParameters {
  void* function;
  unsigned grid[3], block[3], shared;
  void **arguments, **extra;
  void *kernel, *context;
};

PyObject* begin_draws(PyObject*, PyObject*) {
  drawn = std::make_unique<std::vector<DrawnKernel>>();
  Py_RETURN_NONE;
}

void forget_draws(PyObject* capsule) {
  delete static_cast<std::vector<DrawnKernel>*>(PyCapsule_GetPointer(capsule, DRAWS));
}

PyObject* end_draws(PyObject*, PyObject*) {
  if (!drawn) {
    PyErr_SetString(PyExc_RuntimeError, "end_draws without begin_draws");
    return nullptr;
  }
  PyObject* const capsule = PyCapsule_New(drawn.get(), DRAWS, quiet_entry<forget_draws>);
  if (capsule != nullptr) drawn.release();
  return capsule;
}

PyMethodDef draws_functions[] = {
    {"begin_draws", method<begin_draws>(), METH_NOARGS, "begin_draws(): note captured kernels that draw."},
    {"end_draws", method<end_draws>(), METH_NOARGS, "end_draws() -> capsule: those that were captured since."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyObject* draw_object(Draw draw) {
  PyObject* const object = draw_type.tp_alloc(&draw_type, 0);
  if (object != nullptr) reinterpret_cast<DrawObject*>(object)->draw = draw;
  return object;
}

const Draw* draw_of(PyObject* object) {
  return Py_IS_TYPE(object, &draw_type) ? &reinterpret_cast<DrawObject*>(object)->draw : nullptr;
}

std::vector<DrawnKernel>* drawn_kernels() { return drawn.get(); }

std::vector<DrawnKernel>* draws_in(PyObject* capsule) {
  return static_cast<std::vector<DrawnKernel>*>(PyCapsule_GetPointer(capsule, DRAWS));
}

int draw_for(void* executable, std::vector<DrawnKernel>& kernels, uint64_t seed, uint64_t offset) {
  for (DrawnKernel& kernel : kernels) {
    std::vector<void*> pointers;
    for (const auto& [place, draw] : kernel.places) {
      kernel.arguments[place] = reinterpret_cast<void*>(draw.seed ? seed : offset + draw.more);
    }
    for (void*& argument : kernel.arguments) pointers.push_back(&argument);
    KernelParameters parameters = {
        kernel.function, {kernel.grid[0], kernel.grid[1], kernel.grid[2]}, {kernel.threads, 1, 1}, kernel.shared,
        pointers.data(), nullptr, nullptr, nullptr};
    const int code = driver().set_kernel(executable, kernel.node, &parameters);
    if (code != 0) return code;
  }
  return 0;
}

int add_cuda_draws(PyObject* module) {
  draw_type.tp_name = "torchglass._native.Draw";
  draw_type.tp_doc = "A seed or an offset of a generator that a captured graph gets when it is replayed.";
  draw_type.tp_basicsize = sizeof(DrawObject);
  draw_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
  if (PyType_Ready(&draw_type) < 0) return -1;
  return PyModule_AddFunctions(module, draws_functions);
}

}  // namespace torchglass
