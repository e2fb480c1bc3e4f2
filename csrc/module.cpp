// torchglass._native: the parts of the runtime that a call passes through, in C++.
//
//   launch.cpp        Kernel, empty_strided_cpu, reinterpret: what generated wrappers call
//   attention.cpp     attention of float32;  attention_avx512.cpp  its loops
//   write_back.cpp    results that are written into inputs
//   memory.cpp        memory of generated graphs, kept between calls
//   tensor_facts.cpp  a tensor against its metadata
//   global_state.cpp  grad mode, autocast, modes
//   answering.cpp     a method of fake tensors that never fails where PyTorch cannot take it
//   errors.cpp        C++ errors as Python's, at the one place
//   thread_state.cpp  what PyTorch keeps for a thread, put back after an interrupted compile
//   mutations.cpp     changes of tensors and objects, counted
//   checks.cpp        one guard on one value
//   guard_table.cpp   the guards of an entry;  guard_memo.cpp  what it remembers between calls;
//                     guard_table_type.cpp  its Python type
//   dispatch.cpp      the compiled function;  module_call.cpp  how a compiled module is called
//   graph_function.cpp  a compiled graph under autograd;  graph_function_traced.cpp  under torch's compiled autograd
//   frame_hook.cpp    functions called from plain Python inside compiled code (PEP 523)
#include "checks.h"
#include "frame_hook.h"
#include "graph_function.h"
#include "guard_table.h"
#include "memory.h"

namespace {

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "torchglass._native",
    "The parts of torchglass that every compiled call passes through.",
    -1,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
};

}  // namespace

PyMODINIT_FUNC PyInit__native() {
  using namespace torchglass;
  Ref module(PyModule_Create(&definition));
  if (!module) return nullptr;
  for (auto add : {add_launch, add_write_back, add_attention, add_memory, add_tensor_facts, add_global_state, add_checks,
                   add_guard_table, add_frame_hook, add_dispatch, add_module_call, add_graph_function,
                   add_thread_state, add_answering}) {
    if (add(module.get()) < 0) return nullptr;
  }
  return module.release();
}
