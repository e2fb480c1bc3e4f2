// The state outside the arguments that decides what an operation does: grad mode, autocast, modes, ...
#pragma once

#include "native.h"

#include <cstdint>

namespace torchglass {

// The native form of the tuple that `_native.global_state()` returns.
struct GlobalState {
  bool grad_mode = true;
  bool inference_mode = false;
  int8_t default_dtype = -1;
  int8_t autocast_cpu = -1;   // the scalar type, -1 when off
  int8_t autocast_cuda = -1;
  int8_t deterministic = 0;   // 0 off, 1 on, 2 warn only
  int8_t torch_function = 0;  // at::impl::TorchFunctionDisabledState
  uint64_t included = 0;      // thread-local dispatch keys
  uint64_t excluded = 0;
  Ref function_modes;         // tuple of keys of active TorchFunctionModes, outermost first
  Ref dispatch_modes;

  // From that tuple; false with an exception set if it is malformed.
  static bool from_tuple(PyObject* tuple, GlobalState& out);

  // Whether the current thread is in this state. Leaves no exception set.
  bool is_current() const;
};

int add_global_state(PyObject* module);

}  // namespace torchglass
