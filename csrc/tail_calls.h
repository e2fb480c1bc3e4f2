// Continuations call continuations: a loop with a graph break would nest as deep as it has rounds. An entry calls them as
// the last thing it does, so past a few levels such a call is deferred until all of these entries have returned.
#pragma once

#include "native.h"

namespace torchglass {

// Around whatever runs entries and is no continuation itself.
class TailCalls {
 public:
  TailCalls();
  ~TailCalls();
  PyObject* finish(PyObject* result);  // the result, after running what was deferred

 private:
  int before_;
};

// Around a continuation that is called by an entry.
class Deeper {
 public:
  Deeper();
  ~Deeper();
};

bool too_deep();
PyObject* defer(PyObject* continuation, PyObject* const* args, Py_ssize_t count);  // what its caller is to return
int add_tail_calls();

}  // namespace torchglass
