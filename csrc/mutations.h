// Changes that no dict tells of, counted: of a tensor's metadata (`p.data = ...`, `p.requires_grad_()`, `p.t_()`), of
// an object's class, of its `__dict__` as a whole. While none has happened, none of these need be looked at again:
// a model of 4,000 parameters is then checked without touching any.
//
// Counted are the ways to change them, not the objects changed: attributes and methods of Tensor and object in front of
// torch's and Python's own, and operators of ATen in front of their kernels. Each does what it did, and counts. These are
// changes of the whole process, made when a guard table can first use them; mutations.cpp has them in one table, and
// undoes them.
//
// Not counted is what C++ code does to a TensorImpl with no operator. So only tensors that require a gradient, and are
// leaves, are said to be covered: others may come to require one in any operation in place.
#pragma once

#include "native.h"

#include <atomic>
#include <cstdint>

namespace torchglass {

extern std::atomic<uint64_t> mutations_count;

inline uint64_t mutations() {
  return mutations_count.load(std::memory_order_relaxed);
}

// Whether they are counted now. While they are not, mutations() says nothing; it differs when they are again.
extern bool mutations_counted;

// Whether this Python and torch have every change counted: begun, and tried out, at the first call, and at the first
// after it was undone. Needs the GIL.
bool counts_mutations();

// Whether it is counted when an object of this type is given another `__dict__`.
bool counts_dict_of(PyTypeObject* type);

// Adds process_changes and undo_process_changes to the module; -1 with an exception set on failure.
int add_mutations(PyObject* module);

}  // namespace torchglass
