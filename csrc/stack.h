// How much of the thread's C stack is left. Python's own recursion takes none of it and may be as deep as the program
// allows; what passes through us takes some at each level and must end before the stack does.
//
//   ensure_stack();    // in what may come back to itself: throws OutOfStack, which is Python's RecursionError
#pragma once

#include <cstdint>
#include <exception>

namespace torchglass {

class OutOfStack : public std::exception {
 public:
  const char* what() const noexcept override;
};

// Below this address no call of ours goes on before it has asked the system again. At first that is every address.
inline thread_local uintptr_t stack_floor = UINTPTR_MAX;

bool has_stack_below_floor() noexcept;  // sets the floor

inline bool has_stack() noexcept {
  const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  return __builtin_expect(here >= stack_floor, 1) || has_stack_below_floor();
}

inline void ensure_stack() {
  if (!has_stack()) throw OutOfStack();
}

}  // namespace torchglass
