// A compiled graph that autograd can differentiate: a function of tensors, and the node it leaves behind.
//
//   GraphFunction(forward, backward, inputs: int, saved: tuple, kept: int, gradients: tuple, differentiable: tuple,
//                 returned: int, fallback: callable or None, kills: tuple or None, uses: tuple or None,
//                 chain: (object, name, callable) or None)
//       graph(*inputs) -> tuple: the first `returned` of forward([*inputs]), run below autograd.
//       Where one of the inputs at `gradients` requires a gradient, the results at `differentiable` get a node that
//       saves what stands at `saved` in inputs + results. In backward it calls backward(tensors, tangents): the first
//       `kept` of what was saved, and what arrived for each of `differentiable` (None: nothing), as plain strided
//       tensors. That returns a gradient or None for each of `gradients`.
//       fallback(*inputs) is called for it within forward-mode differentiation and torch.func's transforms.
//       A backward that does not retain the graph frees all that is saved. With `kills` (for each of `differentiable`
//       a tuple of their positions) and `uses` (such a tuple for each of `saved`) it kills the results that
//       `kills` names for those whose gradients arrived, and what only spent results read is freed: None stands for it
//       in later backwards.
//       With `chain`, where the object's attribute of that name is not None, callable(value, inputs: list) says for the
//       call in how many nodes its backward is: a tuple of (backward, gradients), in the order in which they run, or
//       None for one node. The first is as above, but its gradients are those of its own row; each further one is
//       called when all has run that waits for gradients of those before, with nothing saved and [None].
//   below_autograd(graph, tensors: list) -> tuple: graph(tensors), of which autograd records nothing.
//
// It does what a torch.autograd.Function does, which costs several microseconds more: saved tensors are autograd's own
// SavedVariable (versions, hooks, no cycles) and gradients are checked by its engine.
#include "graph_function.h"
#include "tensor_facts.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/python_cpp_function.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

namespace torchglass {

using torch::autograd::Edge;
using NodePtr = decltype(Edge::function);  // shared_ptr up to torch 2.11, intrusive_ptr later

SharedObject share(PyObject* borrowed) {
  return SharedObject(Py_NewRef(borrowed), [](PyObject* object) {
    unraising([&] {
      if (!Py_IsInitialized()) return;
      pybind11::gil_scoped_acquire gil;
      Py_DECREF(object);
    });
  });
}

// ------------------------------------------------------------------------------------------------ backward

namespace {

// The Python exception that is set, as C++ code above catches it.
[[noreturn]] void throw_raised() {
  python_error error;
  error.persist();
  throw error;
}

// A gradient as graphs take it: strided, its numbers in memory as they are.
at::Tensor plain(at::Tensor tangent) {
  if (!tangent.defined()) return tangent;
  if (tangent.layout() != at::kStrided) return tangent.to_dense();
  if (tangent.is_conj()) tangent = tangent.resolve_conj();
  if (tangent.is_neg()) tangent = tangent.resolve_neg();
  return tangent._is_zerotensor() ? tangent.clone() : tangent;
}

// A list of the tensors (None for an undefined one), which are given away.
Ref list_of(variable_list& tensors, size_t count) {
  Ref list(PyList_New(static_cast<Py_ssize_t>(count)));
  for (size_t i = 0; list && i < count; ++i) {
    PyObject* item = tensors[i].defined() ? THPVariable_Wrap(std::move(tensors[i])) : Py_NewRef(Py_None);
    if (item == nullptr) return Ref();
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), item);
  }
  tensors.clear();
  return list;
}

}  // namespace

variable_list call_backward(PyObject* backward, size_t count, variable_list& tensors, variable_list& tangents) {
  pybind11::gil_scoped_acquire gil;
  for (auto& tangent : tangents) tangent = plain(std::move(tangent));
  const Ref saved = list_of(tensors, tensors.size());
  const Ref arrived = saved ? list_of(tangents, tangents.size()) : Ref();
  if (!arrived) throw_raised();
  PyObject* arguments[] = {saved.get(), arrived.get()};
  const Ref result(PyObject_Vectorcall(backward, arguments, 2, nullptr));
  if (!result) throw_raised();
  const Ref given(PySequence_Fast(result.get(), "a backward returns a list"));
  if (!given) throw_raised();
  TORCH_CHECK(static_cast<size_t>(PySequence_Fast_GET_SIZE(given.get())) == count, "a backward returned too few");
  variable_list gradients(count);
  for (size_t i = 0; i < count; ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(given.get(), static_cast<Py_ssize_t>(i));
    if (item == Py_None) continue;
    TORCH_CHECK_TYPE(is_tensor(item), "a backward returned something that is no tensor");
    gradients[i] = THPVariable_Unpack(item);
  }
  return gradients;
}

void GraphNode::save(const at::Tensor& tensor) {
  saved_.emplace_back(tensor, tensor.defined() && tensor.grad_fn().get() == this);
}

variable_list GraphNode::unpack() {
  TORCH_CHECK(!released_, torch::autograd::ERR_BACKWARD_TWICE);
  variable_list tensors;
  tensors.reserve(saved_.size());
  for (const auto& saved : saved_) tensors.push_back(saved.unpack(getptr()));
  tensors.resize(kept_);
  return tensors;
}

variable_list GraphNode::apply(variable_list&& tangents) {
  pybind11::gil_scoped_acquire gil;  // saved tensors may have hooks
  check_unspent(tangents);
  variable_list tensors = unpack();
  // else all that is saved would stay alive until the whole backward graph has run
  if (!torch::autograd::get_current_graph_task_keep_graph()) spend(tangents);
  return call_backward(backward_.get(), num_outputs(), tensors, tangents);
}

// Refuses, as eager does, a result of which an earlier backward has freed a node.
void GraphNode::check_unspent(const variable_list& tangents) const {
  for (size_t i = 0; i < spent_.size() && i < tangents.size(); ++i) {
    TORCH_CHECK(!spent_[i] || !tangents[i].defined(), torch::autograd::ERR_BACKWARD_TWICE);
  }
}

// Frees what no result needs that can still be differentiated.
void GraphNode::spend(const variable_list& tangents) {
  if (!liveness_) return release_variables();
  spent_.resize(liveness_->kills.size());
  for (size_t i = 0; i < spent_.size() && i < tangents.size(); ++i) {
    if (!tangents[i].defined()) continue;
    for (const auto other : liveness_->kills[i]) spent_[other] = true;
  }
  for (size_t i = 0; i < saved_.size(); ++i) {
    const auto& uses = liveness_->uses[i];
    if (std::all_of(uses.begin(), uses.end(), [&](Py_ssize_t use) { return spent_[use]; })) {
      saved_[i] = torch::autograd::SavedVariable();
    }
  }
}

// The engine calls it after `apply`, which has freed what may be freed.
void GraphNode::release_variables() {
  if (!spent_.empty()) return;
  released_ = !saved_.empty() || released_;
  saved_.clear();
}

namespace {

// ------------------------------------------------------------------------------------------------ GraphFunction

struct GraphFunction {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject* forward;
  PyObject* backward;
  PyObject* fallback;
  PyObject* chain;  // a tuple of three, or None
  Py_ssize_t inputs, kept, returned;
  Indices saved, gradients, differentiable;
  std::shared_ptr<const Liveness> liveness;
};

GraphFunction* as_graph(PyObject* object) { return reinterpret_cast<GraphFunction*>(object); }

// Warnings of PyTorch's kernels are Python's, as where a program calls the operators: else they go past its filters to
// stderr. One that a filter makes an error is thrown, as the graph's.
Ref run_below_autograd(PyObject* graph, PyObject* tensors) {
  const at::AutoDispatchBelowADInplaceOrView below;
  Ref result;
  {
    torch::PyWarningHandler warnings;
    result = Ref(PyObject_CallOneArg(graph, tensors));
    if (!result) warnings.set_in_exception();
  }
  if (!result || PyTuple_CheckExact(result.get())) return result;
  return Ref(PySequence_Tuple(result.get()));
}

bool is_transformed() {
  return torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr ||
      c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
}

// Inputs and results of one call, by their index.
struct Values {
  GraphFunction* graph;
  PyObject* const* inputs;
  PyObject* results;

  PyObject* object(Py_ssize_t index) const {
    if (index < graph->inputs) return inputs[index];
    index -= graph->inputs;
    TORCH_CHECK_INDEX(index < PyTuple_GET_SIZE(results), "a graph returned too few results");
    return PyTuple_GET_ITEM(results, index);
  }
  at::Tensor tensor(Py_ssize_t index) const {
    PyObject* value = object(index);
    if (value == Py_None) return at::Tensor();
    TORCH_CHECK_TYPE(is_tensor(value), std::string("a graph saves or differentiates ") + Py_TYPE(value)->tp_name + ", no tensor");
    return THPVariable_Unpack(value);
  }
  bool has_input(PyObject* value) const {
    return std::find(inputs, inputs + graph->inputs, value) != inputs + graph->inputs;
  }
};

bool requires_gradient(const Values& values) {
  if (!c10::GradMode::is_enabled()) return false;
  const auto& indices = values.graph->gradients;
  return std::any_of(indices.begin(), indices.end(), [&](Py_ssize_t i) {
    const at::Tensor tensor = values.tensor(i);
    return tensor.defined() && tensor.requires_grad();
  });
}

#if __has_include(<torch/csrc/autograd/node.h>)
using GraphNodePtr = c10::intrusive_ptr<GraphNode>;
GraphNodePtr make_node(SharedObject backward, size_t kept, std::shared_ptr<const Liveness> liveness) {
  return c10::make_intrusive<GraphNode>(std::move(backward), kept, std::move(liveness));
}
#else
using GraphNodePtr = std::shared_ptr<GraphNode>;
GraphNodePtr make_node(SharedObject backward, size_t kept, std::shared_ptr<const Liveness> liveness) {
  auto* node = new GraphNode(std::move(backward), kept, std::move(liveness));
  return GraphNodePtr(node, torch::autograd::deleteNode);
}
#endif

torch::autograd::edge_list edges_to(const Values& values, const Indices& gradients) {
  torch::autograd::edge_list edges;
  edges.reserve(gradients.size() + 1);
  for (const auto index : gradients) {
    const at::Tensor tensor = values.tensor(index);
    edges.push_back(tensor.defined() ? torch::autograd::impl::gradient_edge(tensor) : Edge());
  }
  return edges;
}

// A row of what `chain` gives: what a node calls, and the inputs whose gradients that returns.
struct Link {
  PyObject* backward;  // borrowed
  Indices gradients;
};

bool read_indices(PyObject* tuple, Py_ssize_t end, Indices& out);

std::vector<Link> read_links(PyObject* rows, Py_ssize_t inputs) {
  TORCH_CHECK_TYPE(PyTuple_Check(rows) && PyTuple_GET_SIZE(rows) > 0, "a chain is a tuple of rows");
  std::vector<Link> links(static_cast<size_t>(PyTuple_GET_SIZE(rows)));
  for (size_t i = 0; i < links.size(); ++i) {
    PyObject* row = PyTuple_GET_ITEM(rows, static_cast<Py_ssize_t>(i));
    const bool fits = PyTuple_Check(row) && PyTuple_GET_SIZE(row) == 2 && PyTuple_Check(PyTuple_GET_ITEM(row, 1));
    TORCH_CHECK_TYPE(fits, "a row of a chain is (backward, gradients)");
    links[i].backward = PyTuple_GET_ITEM(row, 0);
    if (!read_indices(PyTuple_GET_ITEM(row, 1), inputs, links[i].gradients)) throw_raised();
  }
  return links;
}

Ref list_of_inputs(PyObject* const* inputs, Py_ssize_t count);

// In which nodes the backward of this call is: null or None for one.
Ref chain_of(const Values& values) {
  const GraphFunction& graph = *values.graph;
  if (graph.chain == Py_None || graph.differentiable.empty()) return Ref();
  const Ref value(PyObject_GetAttr(PyTuple_GET_ITEM(graph.chain, 0), PyTuple_GET_ITEM(graph.chain, 1)));
  if (!value) throw_raised();
  if (value.get() == Py_None) return Ref();
  const Ref list = list_of_inputs(values.inputs, graph.inputs);
  if (!list) throw_raised();
  PyObject* arguments[] = {value.get(), list.get()};
  Ref rows(PyObject_Vectorcall(PyTuple_GET_ITEM(graph.chain, 2), arguments, 2, nullptr));
  if (!rows) throw_raised();
  return rows;
}

// The node that runs first. What runs later lies behind its last edge, through which no gradient goes.
GraphNodePtr linked(const Values& values, const std::vector<Link>& links) {
  const GraphFunction& graph = *values.graph;
  const at::Tensor somewhere = values.tensor(graph.inputs + graph.differentiable.front());
  GraphNodePtr node;
  for (size_t i = links.size(); i-- > 0;) {
    auto edges = edges_to(values, links[i].gradients);
    if (node) edges.emplace_back(NodePtr(node), 0);
    node = make_node(share(links[i].backward), i == 0 ? graph.kept : 0, i == 0 ? graph.liveness : nullptr);
    node->set_next_edges(std::move(edges));
    if (i > 0) node->add_input_metadata(somewhere);  // on whose device and stream it runs
  }
  return node;
}

GraphNodePtr node_of(const Values& values) {
  const GraphFunction& graph = *values.graph;
  const Ref chain = chain_of(values);
  if (chain && chain.get() != Py_None) return linked(values, read_links(chain.get(), graph.inputs));
  auto node = make_node(share(graph.backward), graph.kept, graph.liveness);
  node->set_next_edges(edges_to(values, graph.gradients));
  return node;
}

// A result whose history can be set: what others hold (an input that is returned as it is) is viewed.
void own(const Values& values, Py_ssize_t index) {
  PyObject* result = values.object(values.graph->inputs + index);
  if (Py_REFCNT(result) == 1 || !values.has_input(result)) return;
  const at::Tensor tensor = values.tensor(values.graph->inputs + index);
  const c10::AutoGradMode no_grad(false);
  PyObject* view = THPVariable_Wrap(tensor.view_as(tensor));
  if (view == nullptr) throw_raised();
  PyTuple_SET_ITEM(values.results, index, view);
  Py_DECREF(result);
}

// Puts the node behind the differentiable results.
void record(const Values& values) {
  const GraphFunction& graph = *values.graph;
  auto node = node_of(values);
  for (const auto index : graph.differentiable) {
    own(values, index);
    torch::autograd::set_history(values.tensor(graph.inputs + index), NodePtr(node));
  }
  for (const auto index : graph.saved) node->save(values.tensor(index));
}

// The results as a tuple of our own.
Ref owned(Ref results) {
  if (Py_REFCNT(results.get()) == 1) return results;
  const Py_ssize_t count = PyTuple_GET_SIZE(results.get());
  Ref copy(PyTuple_New(count));
  for (Py_ssize_t i = 0; copy && i < count; ++i) {
    PyTuple_SET_ITEM(copy.get(), i, Py_NewRef(PyTuple_GET_ITEM(results.get(), i)));
  }
  return copy;
}

Ref list_of_inputs(PyObject* const* inputs, Py_ssize_t count) {
  Ref list(PyList_New(count));
  for (Py_ssize_t i = 0; list && i < count; ++i) PyList_SET_ITEM(list.get(), i, Py_NewRef(inputs[i]));
  return list;
}

PyObject* graph_call(PyObject* object, PyObject* const* inputs, size_t nargsf, PyObject* names) {
  GraphFunction* self = as_graph(object);
  const Py_ssize_t count = PyVectorcall_NARGS(nargsf);
  if (count != self->inputs || (names != nullptr && PyTuple_GET_SIZE(names) != 0)) {
    PyErr_Format(PyExc_TypeError, "this graph takes %zd inputs, not %zd", self->inputs, count);
    return nullptr;
  }
  const Ref alive = Ref::borrow(object);
  if (self->fallback != Py_None && is_transformed()) {
    return PyObject_Vectorcall(self->fallback, inputs, count, nullptr);
  }
  RECORD_FUNCTION("CompiledGraph", c10::ArrayRef<const c10::IValue>(), at::sequence_number::peek());
  const Ref list = list_of_inputs(inputs, count);
  if (!list) return nullptr;
  Ref results = run_below_autograd(self->forward, list.get());
  if (results) results = owned(std::move(results));
  if (!results) return nullptr;
  const Values values{self, inputs, results.get()};
  if (requires_gradient(values)) record(values);
  if (self->returned == PyTuple_GET_SIZE(results.get())) return results.release();
  return PyTuple_GetSlice(results.get(), 0, self->returned);
}

// ------------------------------------------------------------------------------------------------ the Python types

// False with an exception set unless `tuple` holds numbers from 0 on, below `end` if that is not negative.
bool read_indices(PyObject* tuple, Py_ssize_t end, Indices& out) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    const Py_ssize_t index = PyLong_AsSsize_t(PyTuple_GET_ITEM(tuple, i));
    if (index == -1 && PyErr_Occurred()) return false;
    if (index < 0 || (end >= 0 && index >= end)) {
      PyErr_Format(PyExc_ValueError, "GraphFunction: no value has index %zd", index);
      return false;
    }
    out.push_back(index);
  }
  return true;
}

// As read_indices, for a tuple of `count` such tuples.
bool read_lists(PyObject* tuple, Py_ssize_t count, Py_ssize_t end, std::vector<Indices>& out) {
  if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != count) {
    PyErr_Format(PyExc_ValueError, "GraphFunction: kills and uses are tuples, here of %zd tuples", count);
    return false;
  }
  out.resize(static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = PyTuple_GET_ITEM(tuple, i);
    if (!PyTuple_Check(item)) {
      PyErr_SetString(PyExc_TypeError, "GraphFunction: kills and uses hold tuples");
      return false;
    }
    if (!read_indices(item, end, out[static_cast<size_t>(i)])) return false;
  }
  return true;
}

// False with an exception set where the two do not fit the graph. None for both: one backward kills all.
bool read_liveness(GraphFunction* self, PyObject* kills, PyObject* uses) {
  if (kills == Py_None && uses == Py_None) return true;
  const auto results = static_cast<Py_ssize_t>(self->differentiable.size());
  auto liveness = std::make_shared<Liveness>();
  if (!read_lists(kills, results, results, liveness->kills) ||
      !read_lists(uses, static_cast<Py_ssize_t>(self->saved.size()), results, liveness->uses)) {
    return false;
  }
  self->liveness = std::move(liveness);
  return true;
}

PyObject* graph_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"forward",        "backward", "inputs",  "saved", "kept", "gradients",
                                "differentiable", "returned", "fallback", "kills",  "uses", "chain", nullptr};
  PyObject *forward, *backward, *saved, *gradients, *differentiable;
  PyObject *fallback = Py_None, *kills = Py_None, *uses = Py_None, *chain = Py_None;
  Py_ssize_t inputs, kept, returned;
  if (!PyArg_ParseTupleAndKeywords(
          args, kwargs, "OOnO!nO!O!n|OOOO:GraphFunction", const_cast<char**>(names), &forward, &backward, &inputs,
          &PyTuple_Type, &saved, &kept, &PyTuple_Type, &gradients, &PyTuple_Type, &differentiable, &returned,
          &fallback, &kills, &uses, &chain)) {
    return nullptr;
  }
  if (inputs < 0 || returned < 0 || kept < 0 || kept > PyTuple_GET_SIZE(saved)) {
    PyErr_SetString(PyExc_ValueError, "GraphFunction: inputs, kept or returned is out of range");
    return nullptr;
  }
  if (chain != Py_None && !(PyTuple_Check(chain) && PyTuple_GET_SIZE(chain) == 3)) {
    PyErr_SetString(PyExc_TypeError, "GraphFunction: chain is (object, name, callable)");
    return nullptr;
  }
  auto* self = as_graph(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  self->vectorcall = entry<graph_call>;
  self->forward = Py_NewRef(forward);
  self->backward = Py_NewRef(backward);
  self->fallback = Py_NewRef(fallback);
  self->chain = Py_NewRef(chain);
  self->inputs = inputs, self->kept = kept, self->returned = returned;
  for (auto* indices : {&self->saved, &self->gradients, &self->differentiable}) new (indices) Indices();
  new (&self->liveness) std::shared_ptr<const Liveness>();
  Ref owner(reinterpret_cast<PyObject*>(self));
  if (!read_indices(saved, -1, self->saved) || !read_indices(gradients, inputs, self->gradients) ||
      !read_indices(differentiable, returned, self->differentiable) || !read_liveness(self, kills, uses)) {
    return nullptr;
  }
  return owner.release();
}

int graph_traverse(PyObject* object, visitproc visit, void* arg) {
  GraphFunction* self = as_graph(object);
  Py_VISIT(self->forward);
  Py_VISIT(self->backward);
  Py_VISIT(self->fallback);
  Py_VISIT(self->chain);
  return 0;
}

int graph_clear(PyObject* object) {
  GraphFunction* self = as_graph(object);
  Py_CLEAR(self->forward);
  Py_CLEAR(self->backward);
  Py_CLEAR(self->fallback);
  Py_CLEAR(self->chain);
  return 0;
}

void graph_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  graph_clear(object);
  GraphFunction* self = as_graph(object);
  for (auto* indices : {&self->saved, &self->gradients, &self->differentiable}) indices->~Indices();
  self->liveness.~shared_ptr();
  Py_TYPE(object)->tp_free(object);
}

PyTypeObject graph_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

int ready_graph() {
  graph_type.tp_name = "torchglass._native.GraphFunction";
  graph_type.tp_doc = "A compiled graph that autograd can differentiate: graph_function.cpp.";
  graph_type.tp_basicsize = sizeof(GraphFunction);
  graph_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL;
  graph_type.tp_vectorcall_offset = offsetof(GraphFunction, vectorcall);
  graph_type.tp_call = PyVectorcall_Call;
  graph_type.tp_new = entry<graph_new>;
  graph_type.tp_dealloc = quiet_entry<graph_dealloc>;
  graph_type.tp_traverse = quiet_entry<graph_traverse>;
  graph_type.tp_clear = entry<graph_clear>;
  return PyType_Ready(&graph_type);
}

PyObject* saved_tensors(PyObject* node, void*) {
  auto* graph = static_cast<GraphNode*>(reinterpret_cast<torch::autograd::THPCppFunction*>(node)->cdata.get());
  variable_list tensors = graph->unpack();
  const Ref list = list_of(tensors, tensors.size());
  return list ? PySequence_Tuple(list.get()) : nullptr;
}

// What users see as the grad_fn of a result.
PyTypeObject node_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
using namespace torch::autograd;  // the macro's names
PyGetSetDef node_properties[] = {
    THP_FUNCTION_DEFAULT_PROPERTIES,
    {const_cast<char*>("saved_tensors"), entry<saved_tensors>, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

void ready_node() {
  torch::autograd::registerCppFunction(
      typeid(GraphNode),
      torch::autograd::_initFunctionPyTypeObject(node_type, "CompiledGraphBackward", node_properties, nullptr));
}

PyObject* below_autograd(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 2) {
    PyErr_SetString(PyExc_TypeError, "below_autograd(graph, tensors) takes a callable and its argument");
    return nullptr;
  }
  return run_below_autograd(args[0], args[1]).release();
}

PyMethodDef graph_function_functions[] = {
    {"below_autograd",
     method<below_autograd>(),
     METH_FASTCALL,
     "below_autograd(graph, tensors) -> tuple: graph(tensors), of which autograd records nothing."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_graph_function(PyObject* module) {
  if (ready_graph() < 0) return -1;
  ready_node();
  if (PyModule_AddObjectRef(module, "GraphFunction", reinterpret_cast<PyObject*>(&graph_type)) < 0) return -1;
  return PyModule_AddFunctions(module, graph_function_functions);
}

}  // namespace torchglass
