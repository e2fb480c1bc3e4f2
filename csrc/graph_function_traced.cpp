// A graph's node under torch's compiled autograd, which records nodes instead of running them: an opaque call.
#include "graph_function.h"

#include <torch/csrc/dynamo/compiled_autograd.h>

namespace torchglass {

using namespace torch::dynamo::autograd;

void GraphNode::compiled_args(CompiledNodeArgs& args) const {
  args.collect(static_cast<uint64_t>(reinterpret_cast<uintptr_t>(backward_.get())));
  args.collect(name());
  args.collect(saved_, /*is_output=*/true);
}

variable_list GraphNode::apply_with_saved(const variable_list& tangents, SwapSavedVariables& saved) {
  saved.before(saved_);
  PackedArgs packed;
  packed.pack(unpack());
  auto arguments = std::move(packed).vec();
  std::vector<at::TypePtr> schema;
  for (const auto& argument : arguments) schema.push_back(argument.type());
  const auto call = [backward = backward_, count = num_outputs()](
                        const variable_list& arrived, const std::vector<c10::IValue>& values) {
    PackedArgs given(values);
    auto tensors = given.unpack<variable_list>();
    auto mine = arrived;
    return call_backward(backward.get(), count, tensors, mine);
  };
  const auto& compiler = getPyCompilerInterface();
  const auto function = compiler->bind_function(
      saved.get_py_compiler(), name(), call, std::move(schema), /*is_custom_function=*/true, /*is_traceable=*/false);
  const auto outputs =
      IValuePacker<std::vector<std::optional<InputMetadata>>>::pack(get_input_metadata(next_edges()));
  auto gradients = compiler->call_function(
      saved.get_py_compiler(), "apply_functional", function, tangents, arguments, outputs);
  saved.after(saved_);
  return gradients;
}

}  // namespace torchglass
