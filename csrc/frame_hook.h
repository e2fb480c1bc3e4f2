// Regions of plain Python inside compiled code, and the frame evaluation hook (PEP 523) that is on inside them.
//
// Torch is not needed here, so that tests can build this part for Pythons without torch.
#pragma once

#include "native.h"

namespace torchglass {

struct Region;

// How many threads are inside a region. While it is 0 the hook is not installed.
extern int watching_threads;

// Sets what the current thread watches for as long as this lives; null: nothing.
class Watching {
 public:
  explicit Watching(Region* region);
  ~Watching();
  Watching(const Watching&) = delete;
  Watching& operator=(const Watching&) = delete;

 private:
  Region* before_;
};

extern PyTypeObject region_type;

// What a compiled function has for a call whose parameters are bound.
enum class Answer { Entry, Miss, Plain };

// Finds the entry of a compiled function for these parameters. Plain: it is to be left to Python. Leaves no exception.
// Defined beside the compiled function (dispatch.cpp).
Answer find_entry(PyObject* compiled, PyObject* const* parameters, Py_ssize_t count, Ref& entry, Ref& fetched);

int add_frame_hook(PyObject* module);

}  // namespace torchglass
