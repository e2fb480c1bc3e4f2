// The node that a compiled graph leaves in the autograd graph: see graph_function.cpp.
#pragma once

#include "native.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <memory>
#include <string>
#include <vector>

namespace torchglass {

// A Python object that C++ may hold and drop without the GIL. Left alone once Python is gone.
using SharedObject = std::shared_ptr<PyObject>;
SharedObject share(PyObject* borrowed);

using torch::autograd::variable_list;

// backward(tensors, tangents) -> a gradient or None for each of `count` inputs. Takes the GIL; throws what Python raises.
// Empties both lists.
variable_list call_backward(PyObject* backward, size_t count, variable_list& tensors, variable_list& tangents);

struct GraphNode : torch::autograd::Node {
  GraphNode(SharedObject backward, size_t kept) : backward_(std::move(backward)), kept_(kept) {}

  std::string name() const override { return "CompiledGraphBackward"; }
  variable_list apply(variable_list&& tangents) override;
  void release_variables() override;

  // Within torch's compiled autograd: a call that it does not look into (graph_function_traced.cpp).
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) const override;
  variable_list apply_with_saved(
      const variable_list& tangents, torch::dynamo::autograd::SwapSavedVariables& saved) override;

  void save(const at::Tensor& tensor);
  variable_list unpack();

 private:
  SharedObject backward_;
  size_t kept_;  // so many of the saved tensors are handed to backward; the others are watched for writes only
  std::vector<torch::autograd::SavedVariable> saved_;
  bool released_ = false;
};

int add_graph_function(PyObject* module);

}  // namespace torchglass
