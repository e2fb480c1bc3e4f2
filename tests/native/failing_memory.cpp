// Preloaded into a Python: operator new fails where torchglass._native calls it, when it is told to.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace {

thread_local long countdown = 0;  // 0: nothing fails

bool is_of_native(void* caller) {
  Dl_info found;
  return dladdr(caller, &found) != 0 && std::strstr(found.dli_fname, "_native") != nullptr;
}

void* allocate(std::size_t bytes, void* caller) {
  if (countdown > 0 && is_of_native(caller) && --countdown == 0) throw std::bad_alloc();
  void* const memory = std::malloc(bytes != 0 ? bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// The allocation of that number from now on, on this thread, fails.
extern "C" void fail_allocation(long number) { countdown = number; }

// Whether it has; from here on nothing fails.
extern "C" int has_failed() {
  const bool failed = countdown == 0;
  countdown = 0;
  return failed;
}

void* operator new(std::size_t bytes) { return allocate(bytes, __builtin_return_address(0)); }
void* operator new[](std::size_t bytes) { return allocate(bytes, __builtin_return_address(0)); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
