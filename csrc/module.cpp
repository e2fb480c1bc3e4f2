// torchglass._native: the parts of the runtime that a call passes through, in C++.
//
//   launch.cpp     Kernel, empty_strided_cpu, reinterpret: what generated wrappers call
#include "native.h"

namespace {

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "torchglass._native",
    "The parts of torchglass that every compiled call passes through.",
    -1,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
};

}  // namespace

PyMODINIT_FUNC PyInit__native() {
  torchglass::Ref module(PyModule_Create(&definition));
  if (!module || torchglass::add_launch(module.get()) < 0) return nullptr;
  return module.release();
}
