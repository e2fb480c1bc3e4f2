// The evaluating path of a guard table: every source from its root, every condition, then the relations between sources.
//
// A source that cannot be reached, and a condition that raises, is a guard that fails; the exception is dropped.
#include "guard_table.h"

#include "tensor_facts.h"

#include <algorithm>

namespace torchglass {
namespace {

Ref failed() {
  PyErr_Clear();
  return Ref();
}

Ref or_failed(PyObject* owned) {
  return owned != nullptr ? Ref(owned) : failed();
}

// The n-th key of a dict. `provenance` becomes DictItem where the dict's version covers the order of its keys.
Ref dict_key(PyObject* dict, Py_ssize_t index, Provenance& provenance) {
  if (PyDict_CheckExact(dict)) {
    provenance = Provenance::DictItem;
    Py_ssize_t position = 0;
    PyObject *key = nullptr, *item = nullptr;
    for (Py_ssize_t i = 0; PyDict_Next(dict, &position, &key, &item); ++i) {
      if (i == index) return Ref::borrow(key);
    }
    return Ref();
  }
  const Ref keys(PySequence_List(dict));
  if (!keys) return failed();
  return index < PyList_GET_SIZE(keys.get()) ? Ref::borrow(PyList_GET_ITEM(keys.get(), index)) : Ref();
}

Ref sequence_item(PyObject* sequence, Py_ssize_t index) {
  const Py_ssize_t size = Py_SIZE(sequence);
  if (index < 0) index += size;
  if (index < 0 || index >= size) return Ref();
  PyObject* item = PyList_Check(sequence) ? PyList_GET_ITEM(sequence, index) : PyTuple_GET_ITEM(sequence, index);
  return Ref::borrow(item);
}

Ref dict_item(PyObject* dict, PyObject* key) {
  PyObject* found = PyDict_GetItemWithError(dict, key);
  return found != nullptr ? Ref::borrow(found) : failed();
}

// What a builtin container or an object of a subclass holds: no `__getitem__` or `__missing__` of its class is asked.
Ref item(const Node& node, PyObject* parent, Provenance& provenance) {
  if (PyDict_Check(parent)) {
    provenance = Provenance::DictItem;
    return dict_item(parent, node.key.get());
  }
  if (node.key_is_index && (PyList_Check(parent) || PyTuple_Check(parent))) {
    provenance = Provenance::SequenceItem;
    return sequence_item(parent, node.index);
  }
  return or_failed(PyObject_GetItem(parent, node.key.get()));
}

// An attribute. A module's own names are items of its dict; dunder names may be found on its type instead.
Ref attribute(const Node& node, PyObject* parent, Provenance& provenance) {
  if (PyModule_CheckExact(parent) && PyUnicode_READ_CHAR(node.key.get(), 0) != '_') {
    PyObject* found = PyDict_GetItemWithError(PyModule_GetDict(parent), node.key.get());
    if (found != nullptr) {
      provenance = Provenance::ModuleItem;
      return Ref::borrow(found);
    }
    PyErr_Clear();
  }
  return or_failed(PyObject_GetAttr(parent, node.key.get()));
}

Ref instance_dict(PyObject* object, Provenance& provenance) {
  if (PyType_Check(object)) return or_failed(PyObject_GetAttrString(object, "__dict__"));
  Ref dict = or_failed(PyObject_GenericGetDict(object, nullptr));
  if (dict && PyDict_CheckExact(dict.get())) provenance = Provenance::InstanceDict;
  return dict;
}

bool holds_all(const Node& node, PyObject* value) {
  for (const Condition& condition : node.conditions) {
    if (!condition.holds(value)) return false;
  }
  return true;
}

}  // namespace

// ------------------------------------------------------------------------------------------------ checking

Ref GuardTable::check(PyObject* const* locals, Py_ssize_t count, bool borrow) {
  if (!alive_ || count < locals_needed_) return Ref();
  if (state_ && !state_->is_current()) return Ref();
  for (int attempt = 0; attempt < 3; ++attempt) {
    bool again = false;
    Ref fetched = check_once(locals, borrow, again);
    if (!again) return fetched;
  }
  return Ref();
}

// `again` becomes true if Python code that a guard ran made this table remember something else meanwhile.
Ref GuardTable::check_once(PyObject* const* locals, bool borrow, bool& again) {
  Run run;
  run.locals = locals;
  if (!read_root_values(run) || !run_roots(run)) return Ref();
  const bool unchanged = !run.evaluation.has_value();
  const uint64_t epoch = epoch_;
  if (!run_live(run)) return Ref();
  again = epoch != epoch_;
  if (again || !check_relations(run, unchanged)) return Ref();
  Ref fetched = fetch(run, borrow);
  if (fetched && !unchanged) commit(run);
  return fetched;
}

bool GuardTable::read_root_values(Run& run) {
  run.root_values.resize(roots_.size());
  run.evaluated.assign(roots_.size(), 0);
  for (size_t i = 0; i < roots_.size(); ++i) {
    const Node& node = nodes_[roots_[i].first];
    PyObject* value = node.kind == Kind::Local ? run.locals[node.index] : node.key.get();
    if (node.kind == Kind::Cell) {
      value = PyCell_GET(value);
      run.held.push_back(Ref::borrow(value));
    }
    if (value == nullptr) return false;
    run.root_values[i] = value;
  }
  for (size_t i = 0; i < roots_.size(); ++i) {
    if (roots_[i].leaf && !check_leaf(roots_[i], run.root_values[i])) return false;
  }
  return true;
}

bool GuardTable::check_leaf(const Root& root, PyObject* value) const {
  return holds_all(nodes_[root.first], value);
}

namespace {

// What a weak reference refers to, None once that is gone.
Ref referent(PyObject* reference) {
  if (!PyWeakref_CheckRef(reference)) return Ref();
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* object = nullptr;
  if (PyWeakref_GetRef(reference, &object) < 0) PyErr_Clear();
  return object != nullptr ? Ref(object) : Ref::borrow(Py_None);
#else
  return Ref::borrow(PyWeakref_GET_OBJECT(reference));
#endif
}

}  // namespace

Ref GuardTable::evaluate_node(const Node& node, PyObject* parent, bool parent_is_live, Provenance& provenance) const {
  provenance = Provenance::Live;
  Provenance found = Provenance::Live;
  Ref value;
  switch (node.kind) {
    case Kind::Item:
      value = item(node, parent, found);
      break;
    case Kind::Attribute:
      value = attribute(node, parent, found);
      break;
    case Kind::InstanceDict:
      value = instance_dict(parent, found);
      break;
    case Kind::DictKey:
      value = dict_key(parent, node.index, found);
      break;
    case Kind::TypeOf:
      found = Provenance::TypeOf;
      value = Ref::borrow(reinterpret_cast<PyObject*>(Py_TYPE(parent)));
      break;
    case Kind::Referent:
      value = referent(parent);
      break;
    default:
      break;
  }
  if (!parent_is_live) provenance = found;
  return value;
}

// Whether the root had this value at the last success: what passes by once is not worth remembering.
bool GuardTable::is_known(const Root& root, PyObject* value) const {
  return value == root.memo.seen || nodes_[root.first].kind == Kind::Constant;
}

bool GuardTable::evaluate_root(Run& run, int index) {
  const Root& root = roots_[index];
  if (!run.evaluation) {
    run.evaluation.emplace();
    run.evaluation->values.resize(nodes_.size());
    run.evaluation->provenances.resize(nodes_.size());
    run.evaluation->versions.resize(nodes_.size());
    run.evaluation->module_versions.resize(nodes_.size());
  }
  Evaluation& out = *run.evaluation;
  run.evaluated[index] = 1;
  ++evaluations;
  const bool may_be_remembered = remember && is_known(root, run.root_values[index]);
  for (int i = root.first; i < root.last; ++i) {
    const Node& node = nodes_[i];
    if (i == root.first) {
      out.values[i] = Ref::borrow(run.root_values[index]);
      out.provenances[i] = Provenance::Root;
    } else {
      PyObject* parent = out.values[node.parent].get();
      if (may_be_remembered && PyModule_CheckExact(parent)) {
        out.module_versions[i] = version_now(PyModule_GetDict(parent));
      }
      out.values[i] = evaluate_node(node, parent, out.provenances[node.parent] == Provenance::Live, out.provenances[i]);
    }
    PyObject* value = out.values[i].get();
    if (value == nullptr) return false;
    if (may_be_remembered && PyDict_Check(value)) out.versions[i] = version_now(value);
    if (!holds_all(node, value)) return false;
  }
  return true;
}

PyObject* GuardTable::value_of(Run& run, int index) {
  const int root = nodes_[index].root;
  if (index == roots_[root].first) return run.root_values[root];
  if (run.evaluated[root]) return run.evaluation->values[index].get();
  return is_live_[index] ? run.live[live_slots_[index]].get() : values_[index];
}

bool ClassFacts::hold_anew() {
  const auto* cls = reinterpret_cast<PyTypeObject*>(type.get());
  const auto holds = [this](const Condition& condition) { return condition.holds(type.get()); };
  if (!std::all_of(conditions.begin(), conditions.end(), holds)) return false;
  version = cls->tp_version_tag;
  return true;
}

bool NameFacts::hold_anew() {
  const DictVersion now = version_now(dict.get());
  for (const auto& [name, object] : names) {
    if (PyDict_GetItemWithError(dict.get(), name.get()) != object.get()) {
      PyErr_Clear();
      return false;
    }
  }
  version = now;
  return true;
}

bool GuardTable::check_relations(Run& run, bool unchanged) {
  for (NameFacts& facts : names_) {
    if (!facts.hold()) return false;
  }
  for (ClassFacts& facts : classes_) {
    if (!facts.hold()) return false;
  }
  for (const auto& [a, b] : same_) {
    if (value_of(run, a) != value_of(run, b)) return false;
  }
  for (Distinct& group : distinct_) {
    if (!check_distinct(run, group, unchanged)) return false;
  }
  for (const Computed& computed : computed_) {
    if (!check_computed(run, computed)) return false;
  }
  return true;
}

namespace {

// A tensor's size or stride, where it is a number.
std::optional<int64_t> size_of(PyObject* value, int dim, bool stride) {
  if (value == nullptr || !is_tensor(value)) return std::nullopt;
  const at::Tensor& tensor = THPVariable_Unpack(value);
  if (tensor.is_nested() || tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) return std::nullopt;
  if (dim >= tensor.dim() || (stride && tensor.layout() != c10::kStrided)) return std::nullopt;
  return stride ? tensor.stride(dim) : tensor.size(dim);
}

Ref size_object(PyObject* value, int dim, bool stride) {
  if (value == nullptr) return failed();
  if (stride) return or_failed(PyObject_CallMethod(value, "stride", "i", dim));
  Ref shape(PyObject_GetAttrString(value, "shape"));
  return shape ? or_failed(PySequence_GetItem(shape.get(), dim)) : failed();
}

}  // namespace

// Whether it holds, if it compares whole numbers that 64 bits hold, as nearly all do; nothing otherwise.
std::optional<bool> GuardTable::check_integers(Run& run, const Computed& computed) {
  PyObject* expected = computed.expected.get();
  if (!PyBool_Check(expected) || !compares(computed.operations.back().integer)) return std::nullopt;
  c10::SmallVector<int64_t, 8> stack;
  for (const Computed::Operation& operation : computed.operations) {
    std::optional<int64_t> number;
    if (operation.arity < 0) {
      PyObject* value = operation.node >= 0 ? value_of(run, operation.node) : operation.object.get();
      number = operation.dim >= 0 ? size_of(value, operation.dim, operation.stride) : integer_of(value);
    } else if (operation.integer != IntegerOperator::None) {
      const int64_t b = stack.pop_back_val(), a = stack.pop_back_val();
      number = apply(operation.integer, a, b);
    }
    if (!number) return std::nullopt;
    stack.push_back(*number);
  }
  return (stack.back() != 0) == (expected == Py_True);
}

// The sources are numbers, which other guards have seen to: no code of the user's runs here.
bool GuardTable::check_computed(Run& run, const Computed& computed) {
  if (const std::optional<bool> holds = check_integers(run, computed)) return *holds;
  c10::SmallVector<Ref, 8> stack;
  for (const Computed::Operation& operation : computed.operations) {
    if (operation.arity < 0) {
      PyObject* value = operation.node >= 0 ? value_of(run, operation.node) : operation.object.get();
      stack.push_back(operation.dim >= 0 ? size_object(value, operation.dim, operation.stride) : Ref::borrow(value));
      if (!stack.back()) return false;
      continue;
    }
    c10::SmallVector<PyObject*, 4> arguments;
    for (size_t i = stack.size() - operation.arity; i < stack.size(); ++i) arguments.push_back(stack[i].get());
    Ref result(PyObject_Vectorcall(operation.object.get(), arguments.data(), arguments.size(), nullptr));
    if (!result) {
      PyErr_Clear();
      return false;
    }
    stack.resize(stack.size() - operation.arity);
    stack.push_back(std::move(result));
  }
  return same_constant(stack.back().get(), computed.expected.get());
}

namespace {

bool sorted_without_twins(std::vector<PyObject*>& pointers) {
  std::sort(pointers.begin(), pointers.end());
  return std::adjacent_find(pointers.begin(), pointers.end()) == pointers.end();
}

}  // namespace

// Remembered members keep their place in a sorted list, so a call pays only for those that may have changed.
bool GuardTable::check_distinct(Run& run, Distinct& group, bool unchanged) {
  std::vector<PyObject*> fresh;
  if (!unchanged) {
    for (const int node : group.nodes) fresh.push_back(value_of(run, node));
    return sorted_without_twins(fresh);
  }
  if (group.epoch != epoch_) {
    group.remembered.clear();
    group.fresh.clear();
    for (const int node : group.nodes) {
      if (node == roots_[nodes_[node].root].first || is_live_[node]) {
        group.fresh.push_back(node);
      } else {
        group.remembered.push_back(values_[node]);
      }
    }
    if (!sorted_without_twins(group.remembered)) return false;
    group.epoch = epoch_;
  }
  if (group.fresh.empty()) return true;
  for (const int node : group.fresh) {
    PyObject* value = value_of(run, node);
    if (std::binary_search(group.remembered.begin(), group.remembered.end(), value)) return false;
    fresh.push_back(value);
  }
  return sorted_without_twins(fresh);
}

}  // namespace torchglass
