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

using Indices = std::vector<Py_ssize_t>;

// What the results of a graph have in common, by their position in `differentiable`.
struct Liveness {
  std::vector<Indices> kills;    // for each result: those that eager cannot differentiate after it
  std::vector<Indices> uses;  // for each saved tensor: those whose backward reads it
};

struct GraphNode : torch::autograd::Node {
  // Without `liveness` one backward kills all results.
  GraphNode(SharedObject backward, size_t kept, std::shared_ptr<const Liveness> liveness)
      : backward_(std::move(backward)), kept_(kept), liveness_(std::move(liveness)) {}

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
  void check_unspent(const variable_list& tangents) const;
  void spend(const variable_list& tangents);

  SharedObject backward_;
  size_t kept_;  // so many of the saved tensors are handed to backward; the others are watched for writes only
  std::vector<torch::autograd::SavedVariable> saved_;
  bool released_ = false;
  std::shared_ptr<const Liveness> liveness_;
  std::vector<bool> spent_;  // empty before the first backward that frees
};

int add_graph_function(PyObject* module);

}  // namespace torchglass
