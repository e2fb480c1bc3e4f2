// The functions of a GPU's driver that this package calls. They are looked up when the first one is needed: no file here
// needs CUDA to be compiled, nor to be loaded.
#pragma once

#include "native.h"

#include <cstdint>
#include <type_traits>
#include <vector>

#include <dlfcn.h>

namespace torchglass {

struct Driver {
  int (*get_device)(int*, int);
  int (*retain_context)(void**, int);
  int (*current_context)(void**);
  int (*push_context)(void*);
  int (*pop_context)(void**);
  int (*load)(void**, const void*);
  int (*find)(void**, void*, const char*);
  int (*attribute)(int*, int, void*);
  int (*set_attribute)(void*, int, int);
  int (*launch)(
      void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
  int (*copy)(uintptr_t, uintptr_t, size_t, void*);
  int (*copy_from_host)(uintptr_t, const void*, size_t, void*);
  int (*is_capturing)(void*, int*);
  int (*is_idle)(void*);
  int (*launch_graph)(void*, void*);
  int (*error_string)(int, const char**);
  int (*capture_info)(void*, int*, uint64_t*, void**, void* const**, size_t*);
  int (*set_kernel)(void*, void*, const void*);
  bool complete = false;
  bool patches = false;  // whether captured kernels can be given other arguments

  Driver() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) return;
    const auto found = [&](auto& function, const char* symbol) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, symbol));
      return function != nullptr;
    };
    complete = found(get_device, "cuDeviceGet") && found(retain_context, "cuDevicePrimaryCtxRetain") &&
               found(current_context, "cuCtxGetCurrent") && found(push_context, "cuCtxPushCurrent_v2") &&
               found(pop_context, "cuCtxPopCurrent_v2") && found(load, "cuModuleLoadData") &&
               found(find, "cuModuleGetFunction") && found(attribute, "cuFuncGetAttribute") &&
               found(set_attribute, "cuFuncSetAttribute") && found(launch, "cuLaunchKernel") &&
               found(copy, "cuMemcpyDtoDAsync_v2") && found(copy_from_host, "cuMemcpyHtoDAsync_v2") && found(is_capturing, "cuStreamIsCapturing") &&
               found(is_idle, "cuStreamQuery") &&
               found(launch_graph, "cuGraphLaunch") && found(error_string, "cuGetErrorString");
    patches = found(capture_info, "cuStreamGetCaptureInfo_v2") && found(set_kernel, "cuGraphExecKernelNodeSetParams_v2");
  }
};

inline const Driver& driver() {
  static const Driver one;
  return one;
}

// What the driver says of an error.
inline const char* driver_error(int code) {
  const char* why = nullptr;
  return driver().error_string(code, &why) != 0 || why == nullptr ? "unknown error" : why;
}

// A context made current until the end of the scope, if it is not so already. A thread that has none keeps it, as after
// a first launch by CUDA's runtime: cuBLAS warns where it finds none.
class Current {
 public:
  explicit Current(void* context) {
    void* now = nullptr;
    driver().current_context(&now);
    pushed_ = now != context && driver().push_context(context) == 0 && now != nullptr;
  }
  ~Current() {
    void* ended = nullptr;
    if (pushed_) driver().pop_context(&ended);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  bool pushed_ = false;
};

// A number that a GPU's generator gives a captured graph when it is replayed: its seed, or its offset and so much more.
struct Draw {
  bool seed;
  uint64_t more;
};

// A captured kernel whose arguments at `places` are such numbers.
struct DrawnKernel {
  void *node, *function;
  unsigned grid[3], threads, shared;
  std::vector<void*> arguments;
  std::vector<std::pair<size_t, Draw>> places;
};

PyObject* draw_object(Draw draw);           // what stands for it in a wrapper
const Draw* draw_of(PyObject* object);      // null if it is none
std::vector<DrawnKernel>* drawn_kernels();  // where a capture of ours leaves them; null if none is at work

std::vector<DrawnKernel>* draws_in(PyObject* capsule);  // of end_draws; null with an exception set for another one

// Gives the kernels of an instantiated graph the numbers for a seed and an offset; the driver's error.
int draw_for(void* executable, std::vector<DrawnKernel>& kernels, uint64_t seed, uint64_t offset);

}  // namespace torchglass
