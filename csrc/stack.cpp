// Where the thread's stack ends, as the system says: glibc reads the main thread's from its limit and /proc/self/maps.
//
// It is asked when a thread comes here first and whenever a call is about to be refused: a program may have raised the
// main thread's limit (resource.setrlimit). Elsewhere than with glibc and on macOS nothing is refused (musl
// knows of the main thread's stack only what it has used).
#include "stack.h"

#include <algorithm>

#if defined(__GLIBC__) || defined(__APPLE__)
#include <pthread.h>
#endif

namespace torchglass {
namespace {

// What is kept for all that a call does without coming here again: a compile takes less than 80 KB (measured). Large
// stacks keep more: Linux gives the main thread none of the last MB above other memory.
uintptr_t kept(uintptr_t size) {
  constexpr uintptr_t kb = 1024;
  return std::max(std::min(size / 3, 384 * kb), std::min(size / 16, 2048 * kb));
}

struct Stack {
  uintptr_t begin = 0, end = 0;  // the addresses that may be used; both 0 if that is not known
};

Stack stack_of_thread() noexcept {
#if defined(__GLIBC__)
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return {};
  void* begin = nullptr;
  size_t size = 0, guard = 0;
  const bool known = pthread_attr_getstack(&attributes, &begin, &size) == 0 &&
      pthread_attr_getguardsize(&attributes, &guard) == 0;
  pthread_attr_destroy(&attributes);
  if (!known || guard > size) return {};
  const auto address = reinterpret_cast<uintptr_t>(begin);
  return {address + guard, address + size};  // glibc counts the guard as a part of the stack
#elif defined(__APPLE__)
  const auto end = reinterpret_cast<uintptr_t>(pthread_get_stackaddr_np(pthread_self()));
  return {end - pthread_get_stacksize_np(pthread_self()), end};
#else
  return {};
#endif
}

}  // namespace

const char* OutOfStack::what() const noexcept {
  return "the thread's C stack is nearly used up: calls of compiled functions and values inside values take a part of it "
         "at each level (threading.stack_size() and ulimit -s make it larger)";
}

bool has_stack_below_floor() noexcept {
  const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  const Stack stack = stack_of_thread();
  if (here < stack.begin || here >= stack.end) {  // on a stack that somebody else made: a fiber's
    stack_floor = 0;
    return true;
  }
  stack_floor = stack.begin + kept(stack.end - stack.begin);
  return here >= stack_floor;
}

}  // namespace torchglass
