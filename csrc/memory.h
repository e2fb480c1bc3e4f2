// Tensors whose memory is kept when they die: see memory.cpp.
#pragma once

#include "native.h"

#include <ATen/core/Tensor.h>

namespace torchglass {

// An uninitialised CPU tensor on kept memory.
at::Tensor empty_kept(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype);

// Adds release_memory to the module; -1 with an exception set on failure.
int add_memory(PyObject* module);

}  // namespace torchglass
