// torchglass._native: the parts of the runtime that a call passes through, in C++.
//
//   launch.cpp        Kernel, empty_strided, reinterpret: what generated wrappers call
//   cuda_launch.cpp   CudaKernel: machine code for a GPU, started on the current stream
//   cuda_replay.cpp   GraphReplay: a CUDA graph whose results stay valid;  cuda_draws.cpp  its random
//                     numbers;  cuda_driver.h  the driver of a GPU
//   philox.cpp        random numbers taken from a GPU's generator
//   attention.cpp     attention of float32;  attention_avx512.cpp  its loops
//   write_back.cpp    results that are written into inputs
//   memory.cpp        memory of generated graphs, kept between calls
//   tensor_facts.cpp  a tensor against its metadata
//   global_state.cpp  grad mode, autocast, modes
//   answering.cpp     a method of fake tensors that never fails where PyTorch cannot take it
//   errors.cpp        C++ errors as Python's, at the one place
//   stack.cpp         how much C stack is left
//   thread_state.cpp  what PyTorch keeps for a thread, put back after an interrupted compile
//   mutations.cpp     changes of tensors and objects, counted; all that is changed of others' types
//   checks.cpp        one guard on one value
//   guard_table.cpp   the guards of an entry;  guard_memo.cpp  what it remembers between calls;
//                     guard_table_type.cpp  its Python type
//   dispatch.cpp      the compiled function;  module_call.cpp  how a compiled module is called
//   size_dispatch.cpp which of a graph's variants a call runs: its sizes say it
//   graph_function.cpp  a compiled graph under autograd;  graph_function_traced.cpp  under torch's compiled autograd
//   frame_hook.cpp    functions called from plain Python inside compiled code (PEP 523)
#include "checks.h"
#include "frame_hook.h"
#include "graph_function.h"
#include "guard_table.h"
#include "memory.h"
#include "mutations.h"

namespace torchglass {
namespace {

// What is counted and hooked is so for the process, and the GIL of one interpreter guards it.
bool suits() {
  if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
    PyErr_SetString(PyExc_ImportError, "torchglass works in the main interpreter alone, not in subinterpreters");
    return false;
  }
  PyObject* const flags = PySys_GetObject("abiflags");  // borrowed; native.h refuses the headers of such a Python
  const bool named = flags != nullptr && PyUnicode_Check(flags);
  if (named && PyUnicode_FindChar(flags, 't', 0, PyUnicode_GET_LENGTH(flags), 1) >= 0) {
    PyErr_SetString(PyExc_ImportError, "torchglass needs a Python with the GIL, not a free-threaded one");
    return false;
  }
  return true;
}

bool fill(PyObject* module) {
  for (auto add : {add_launch, add_cuda_launch, add_cuda_replay, add_cuda_draws, add_philox, add_write_back, add_attention, add_memory, add_tensor_facts, add_global_state, add_checks,
                   add_guard_table, add_frame_hook, add_dispatch, add_size_dispatch, add_module_call, add_graph_function,
                   add_thread_state, add_answering, add_mutations}) {
    if (add(module) < 0) return false;
  }
  return true;
}

// The types are made once for the process: who imports it again, with another name or without `sys.modules`, gets them.
int execute(PyObject* module) {
  static PyObject* contents = nullptr;
  if (!suits()) return -1;
  PyObject* const names = PyModule_GetDict(module);
  if (contents != nullptr) return PyDict_Merge(names, contents, 0);
  if (!fill(module)) return -1;
  contents = PyDict_Copy(names);
  return contents != nullptr ? 0 : -1;
}

PyModuleDef_Slot slots[] = {
    {Py_mod_exec, reinterpret_cast<void*>(entry<execute>)},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0, nullptr},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "torchglass._native",
    "The parts of torchglass that every compiled call passes through.",
    0,
    nullptr,
    slots,
    nullptr,
    nullptr,
    nullptr,
};

}  // namespace
}  // namespace torchglass

PyMODINIT_FUNC PyInit__native() {
  return PyModuleDef_Init(&torchglass::definition);
}
