// The remembered path of a guard table.
//
// A module's parameters hang in dicts within dicts. Every change of a dict gives it a new version (dict_versions.h), and
// none is given twice, so "this address, this version" means "this dict, unchanged": each value in it is the object it
// was, alive ever since. After a root was evaluated twice with the same value, the memo lists what must be looked at
// again:
//
//   - for an object whose __dict__ is walked: its type, and that its __dict__ is still that dict,
//   - for a dict: its version. If it differs, its known items are looked up again (a loop that counts in globals
//     changes the version on every call and none of our items),
//   - for a list or tuple: the items, by pointer, and the conditions on them,
//   - for a tensor: its metadata, which has none,
//   - for a dict that must be empty: its size. A module has four such, for its hooks, so they have a list of their own,
//   - conditions that a living object may come to break: a list's length, a Python object's class,
//   - live sources and conditions, which may run Python code: evaluated as ever, after all the above.
//
// Where no dict has changed since the memo last held (dict_versions.h), nothing is asked of dicts.
// Where mutations are counted (mutations.h) and there was none, nothing is asked of the parameters and of the objects
// whose __dict__ is walked, as far as dicts hold them.
//
// All pointers are borrowed, so a memo keeps nothing alive. This is safe because steps are in the order of the tree:
// each pointer is followed only after the step before has shown that its holder still holds it, and up to the live
// part no Python code runs that could change that. Where code may run (looking up in a dict with odd keys), the sweep
// starts again from the root.
#include "guard_table.h"
#include "mutations.h"

#include <torch/csrc/autograd/forward_grad.h>

#include <algorithm>

namespace torchglass {

namespace {

// How far from an object the pointer to its dict is; no_dict if it has none of its own.
int32_t place_of_dict(PyObject* object) {
  PyObject** const place = _PyObject_GetDictPtr(object);
  const ptrdiff_t offset = place != nullptr ? reinterpret_cast<char*>(place) - reinterpret_cast<char*>(object) : no_dict;
  return offset == static_cast<int32_t>(offset) ? static_cast<int32_t>(offset) : no_dict;
}

bool has_instance_dict(const Step& step) {
  if (Py_TYPE(step.object) != step.type || step.dict == no_dict) return false;
  return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(step.object) + step.dict) == step.value;
}

bool relies_on_version(const Step& step) {
  return step.kind == StepKind::Version || step.kind == StepKind::ModuleItem;
}

// Whether the version of a dict shows that the value is the very object it was: in a list an address may be used again.
bool is_versioned(Provenance provenance) {
  return provenance == Provenance::DictItem || provenance == Provenance::ModuleItem;
}

// Whether an object of this type may be given another class while it lives.
bool may_change_class(PyTypeObject* type) {
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0;
}

bool has_sequence_item(PyObject* sequence, Py_ssize_t index, PyObject* item) {
  const Py_ssize_t size = Py_SIZE(sequence);
  if (index < 0) index += size;
  if (index < 0 || index >= size) return false;
  return item == (PyList_Check(sequence) ? PyList_GET_ITEM(sequence, index) : PyTuple_GET_ITEM(sequence, index));
}

template <class Items, class Holds>
C10_ALWAYS_INLINE bool all_of(Items& items, const Holds& holds) {
  return std::all_of(items.begin(), items.end(), holds);
}

bool is_dual_level_entered() {
  return torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr;
}

}  // namespace

// ------------------------------------------------------------------------------------------------ using the memo

// Evaluates the roots that are not remembered, then sweeps over the others in one go.
bool GuardTable::run_roots(Run& run) {
  const int count = static_cast<int>(roots_.size());
  const auto is_remembered = [&](int i) { return roots_[i].memo.ready && roots_[i].memo.seen == run.root_values[i]; };
  for (int i = 0; i < count; ++i) {
    if (!roots_[i].leaf && !is_remembered(i) && !evaluate_root(run, i)) return false;
  }
  int patience = 16;
  for (int i = 0; i < count;) {
    if (roots_[i].leaf || run.evaluated[i]) {
      ++i;
      continue;
    }
    const Sweep sweep = is_remembered(i) ? sweep_root(roots_[i]) : Sweep::Fails;
    if (sweep == Sweep::Holds) {
      ++i;
      continue;
    }
    if ((sweep == Sweep::Fails || --patience == 0) && !evaluate_root(run, i)) return false;
    i = 0;
  }
  return true;
}

GuardTable::Sweep GuardTable::sweep_root(Root& root) {
  Memo& memo = root.memo;
  const uint64_t changes = memo.asks_for_changes ? dict_changes() : 0, mutated = mutations();
  const bool settled = mutations_counted && memo.settled_at == mutated;
  if (memo.asks_for_changes && memo.last_dict_epoch == changes) {
    if (!all_hold(memo.loose) || !(settled || all_hold(memo.counted))) return Sweep::Fails;
  } else {
    const Sweep sweep = sweep_steps(root, settled);
    if (sweep != Sweep::Holds) return sweep;
    memo.last_dict_epoch = changes;
  }
  const bool dual = !(memo.tensors.empty() && memo.counted_tensors.empty()) && is_dual_level_entered();
  const auto holds = [dual](TensorSnapshot& tensor) { return tensor.holds(dual); };
  if (!all_of(memo.tensors, holds)) return Sweep::Fails;
  if ((!settled || dual) && !all_of(memo.counted_tensors, holds)) return Sweep::Fails;
  memo.settled_at = mutated;
  return Sweep::Holds;
}

GuardTable::Sweep GuardTable::sweep_steps(Root& root, bool settled) {
  const Step* changed = nullptr;  // its dict has another version
  // the two kinds that a model has thousands of come first
  const auto holds = [&](const Step& step) {
    if (step.kind == StepKind::Version) {
      if (step.type != nullptr && Py_TYPE(step.object) != step.type) return false;
    } else if (step.kind == StepKind::InstanceDict) {
      return (settled && step.counted) || has_instance_dict(step);
    } else {
      if (!step_holds(step)) return false;
      if (step.kind != StepKind::ModuleItem) return true;
    }
    if (step.version.is_current()) return true;
    changed = &step;
    return false;
  };
  const std::vector<Step>& steps = root.memo.steps;
  if (!all_of(steps, holds)) {
    return changed == nullptr ? Sweep::Fails : look_again(root, changed - steps.data());
  }
  const auto is_empty = [](PyObject* dict) { return PyDict_GET_SIZE(dict) == 0; };
  return all_of(root.memo.empty, is_empty) ? Sweep::Holds : Sweep::Fails;
}

bool GuardTable::all_hold(const std::vector<Step>& steps) const {
  return all_of(steps, [this](const Step& step) { return step_holds(step); });
}

// All that a step asks but whether a dict's version is the same.
bool GuardTable::step_holds(const Step& step) const {
  switch (step.kind) {
    case StepKind::InstanceDict:
      return has_instance_dict(step);
    case StepKind::Version:
    case StepKind::ModuleItem:
      return step.type == nullptr || Py_TYPE(step.object) == step.type;
    case StepKind::Condition:
      return nodes_[step.node].conditions[step.condition].holds(step.object);
    case StepKind::SequenceItem:
      return Py_TYPE(step.object) == step.type &&
          has_sequence_item(step.object, nodes_[step.node].index, step.value);
    case StepKind::TypeOf:
      return reinterpret_cast<PyObject*>(Py_TYPE(step.object)) == step.value;
    default:
      return false;
  }
}

// A dict has changed: look its known items up again. Again if they are the same, since a look-up may run Python code,
// and since what is at the same address may be another object.
GuardTable::Sweep GuardTable::look_again(Root& root, size_t index) {
  root.memo.settled_at = UINT64_MAX;
  const Step step = root.memo.steps[index];
  const uint64_t generation = root.memo.generation;
  const bool of_module = step.kind == StepKind::ModuleItem;
  const Ref dict = Ref::borrow(of_module ? PyModule_GetDict(step.object) : step.object);
  const DictVersion version = version_now(dict.get());
  if (!(of_module ? same_module_item(step, dict.get()) : same_children(step.node, dict.get()))) return Sweep::Fails;
  if (root.memo.ready && root.memo.generation == generation) root.memo.steps[index].version = version;
  return Sweep::Again;
}

bool GuardTable::same_module_item(const Step& step, PyObject* dict) {
  const Node& node = nodes_[step.node];
  const Ref found = Ref::borrow(PyDict_GetItemWithError(dict, node.key.get()));
  PyErr_Clear();
  return found && found.get() == values_[step.node] && holds_purely(node, found.get());
}

bool GuardTable::same_children(int index, PyObject* dict) {
  const Node& node = nodes_[index];
  for (const Condition& condition : node.conditions) {
    if (condition.is_covered_by_version(dict) && !condition.holds(dict)) return false;
  }
  for (const int child_index : node.children) {
    const Node& child = nodes_[child_index];
    if (is_live_[child_index] || (child.kind != Kind::Item && child.kind != Kind::DictKey)) continue;
    Provenance provenance;
    const Ref found = evaluate_node(child, dict, false, provenance);
    if (found.get() != values_[child_index] || !found || !holds_purely(child, found.get())) return false;
  }
  return true;
}

bool GuardTable::holds_purely(const Node& node, PyObject* value) const {
  for (const Condition& condition : node.conditions) {
    if (condition.is_pure(value) && !condition.holds(value)) return false;
  }
  return true;
}

// ------------------------------------------------------------------------------------------------ live parts

// What these need from remembered roots is held first: the code they run may change anything.
bool GuardTable::run_live(Run& run) {
  c10::SmallVector<LiveStep, 32> steps;
  for (size_t i = 0; i < roots_.size(); ++i) {
    if (run.evaluated[i]) continue;
    const auto& live = roots_[i].memo.live;
    steps.append(live.begin(), live.end());
  }
  if (steps.empty()) return true;
  run.live.resize(live_count_);
  for (const LiveStep& step : steps) {
    const int needed = step.condition < 0 ? nodes_[step.node].parent : step.node;
    if (is_live_[needed]) continue;
    run.live[live_slots_[needed]] = Ref::borrow(value_of(run, needed));
  }
  run.fetched = remembered_fetched(run);
  for (const LiveStep& step : steps) {
    if (!run_live_step(run, step)) return false;
  }
  return true;
}

bool GuardTable::run_live_step(Run& run, const LiveStep& step) {
  const Node& node = nodes_[step.node];
  if (step.condition >= 0) return node.conditions[step.condition].holds(run.live[live_slots_[step.node]].get());
  Provenance provenance;
  Ref& place = run.live[live_slots_[step.node]];
  place = evaluate_node(node, run.live[live_slots_[node.parent]].get(), true, provenance);
  PyObject* value = place.get();
  if (value == nullptr) return false;
  for (const Condition& condition : node.conditions) {
    if (!condition.holds(value)) return false;
  }
  return true;
}

// ------------------------------------------------------------------------------------------------ making the memo

// A memo that memory did not suffice for is none, and neither are the others: they have no places for what is live.
void GuardTable::commit(Run& run) {
  if (!remember) return;
  try {
    remember_evaluated(run);
  } catch (...) {
    forget();
    throw;
  }
}

void GuardTable::remember_evaluated(Run& run) {
  ++epoch_;
  drop_fetched();
  for (size_t i = 0; i < roots_.size(); ++i) {
    if (!run.evaluated[i]) continue;
    Root& root = roots_[i];
    PyObject* value = run.root_values[i];
    const bool known = is_known(root, value);
    root.memo.seen = value;
    root.memo.ready = false;
    ++root.memo.generation;
    if (known) promote(*run.evaluation, root);
  }
  place_live();
}

// A slot of `Run::live` for each node that live steps read or evaluate. It is the node's for good: a run may be under
// way while the code that a live step runs comes here.
void GuardTable::place_live() {
  const auto place = [this](int node) {
    if (live_slots_[node] < 0) live_slots_[node] = live_count_++;
  };
  for (const Root& root : roots_) {
    for (const LiveStep& step : root.memo.live) {
      place(step.node);
      if (step.condition < 0) place(nodes_[step.node].parent);
    }
  }
}

void GuardTable::promote(const Evaluation& evaluation, Root& root) {
  Memo& memo = root.memo;
  memo.steps.clear();
  memo.loose.clear();
  memo.counted.clear();
  memo.tensors.clear();
  memo.counted_tensors.clear();
  memo.live.clear();
  memo.empty.clear();
  memo.last_dict_epoch = memo.settled_at = UINT64_MAX;
  for (int i = root.first; i < root.last; ++i) {
    values_[i] = evaluation.values[i].get();
    is_live_[i] = evaluation.provenances[i] == Provenance::Live;
    if (is_live_[i]) {
      memo.live.push_back({i, -1});
      continue;
    }
    add_step(evaluation, memo, i);
    const bool needs_version = add_conditions(evaluation, memo, i);
    if (needs_version && must_be_empty(evaluation, i)) {
      memo.empty.push_back(values_[i]);
    } else {
      add_version(evaluation, memo, i, needs_version);
    }
  }
  memo.ready = std::all_of(memo.steps.begin(), memo.steps.end(), [](const Step& step) {
    return !relies_on_version(step) || step.version.place != nullptr;
  });
  memo.asks_for_changes = memo.steps.size() + memo.empty.size() >= many_dicts;
  if (!memo.asks_for_changes) return;
  for (const Step& step : memo.steps) {
    if (step.kind == StepKind::Version && step.type == nullptr) continue;
    (step.counted ? memo.counted : memo.loose).push_back(step);
  }
}

void GuardTable::add_step(const Evaluation& evaluation, Memo& memo, int index) {
  StepKind kind;
  switch (evaluation.provenances[index]) {
    case Provenance::SequenceItem:
      kind = StepKind::SequenceItem;
      break;
    case Provenance::InstanceDict:
      kind = StepKind::InstanceDict;
      break;
    case Provenance::TypeOf:
      kind = StepKind::TypeOf;
      break;
    case Provenance::ModuleItem:
      kind = StepKind::ModuleItem;
      break;
    default:
      return;
  }
  PyObject* parent = evaluation.values[nodes_[index].parent].get();
  Step step{kind, false, 0, {index}, parent, Py_TYPE(parent), {evaluation.values[index].get()}};
  if (kind == StepKind::InstanceDict) {
    step.dict = place_of_dict(parent);
    step.counted = is_versioned(evaluation.provenances[nodes_[index].parent]) && counts_dict_of(Py_TYPE(parent));
  }
  if (kind == StepKind::ModuleItem) step.version = evaluation.module_versions[index];
  memo.steps.push_back(step);
}

// Returns whether a condition relies on the version of the value, a dict.
bool GuardTable::add_conditions(const Evaluation& evaluation, Memo& memo, int index) {
  const Node& node = nodes_[index];
  PyObject* value = evaluation.values[index].get();
  const Provenance provenance = evaluation.provenances[index];
  const bool versioned = is_versioned(provenance);
  const bool type_is_stepped = std::any_of(node.children.begin(), node.children.end(), [&](int child) {
    return evaluation.provenances[child] == Provenance::InstanceDict;
  });
  bool needs_version = false;
  for (size_t i = 0; i < node.conditions.size(); ++i) {
    const bool covered = versioned &&
        (node.conditions[i].is_permanent() || (node.conditions[i].check == Check::Type && type_is_stepped));
    if (!covered) needs_version |= remember_condition(memo, index, static_cast<int>(i), value, provenance);
  }
  return needs_version;
}

bool GuardTable::remember_condition(Memo& memo, int index, int number, PyObject* value, Provenance provenance) {
  const Condition& condition = nodes_[index].conditions[number];
  if (condition.check == Check::Tensor) {
    TensorSnapshot tensor(value, condition.tensor.get());
    const bool counted = tensor.is_leaf_with_grad() && is_versioned(provenance) && counts_mutations();
    (counted ? memo.counted_tensors : memo.tensors).push_back(tensor);
  } else if (!condition.is_pure(value)) {
    memo.live.push_back({index, number});
  } else if (condition.is_covered_by_version(value)) {
    return true;
  } else {
    memo.steps.push_back({StepKind::Condition, false, static_cast<uint16_t>(number), {index}, value, nullptr, {}});
  }
  return false;
}

// Whether the node is a builtin dict of which nothing is asked but that it be empty.
bool GuardTable::must_be_empty(const Evaluation& evaluation, int index) const {
  const Node& node = nodes_[index];
  PyObject* const value = evaluation.values[index].get();
  if (!node.children.empty() || may_change_class(Py_TYPE(value))) return false;
  return std::all_of(node.conditions.begin(), node.conditions.end(), [&](const Condition& condition) {
    return condition.is_permanent() || condition.asks_for_empty_dict(value);
  });
}

void GuardTable::add_version(const Evaluation& evaluation, Memo& memo, int index, bool needed) {
  PyObject* value = evaluation.values[index].get();
  if (!PyDict_Check(value)) return;
  for (const int child : nodes_[index].children) needed |= evaluation.provenances[child] == Provenance::DictItem;
  if (!needed) return;
  PyTypeObject* const type = may_change_class(Py_TYPE(value)) ? Py_TYPE(value) : nullptr;
  Step step{StepKind::Version, false, 0, {index}, value, type, {}};
  step.version = evaluation.versions[index];
  memo.steps.push_back(step);
}

void GuardTable::forget() {
  for (Root& root : roots_) {
    root.memo.ready = false;
    root.memo.seen = nullptr;
    ++root.memo.generation;
  }
  ++epoch_;
  drop_fetched();
}

bool GuardTable::remembers() const {
  return std::all_of(roots_.begin(), roots_.end(), [](const Root& root) { return root.leaf || root.memo.ready; });
}

void GuardTable::clear() {
  alive_ = false;
  forget();
  if (link_) *static_cast<GuardTable**>(PyCapsule_GetPointer(link_.get(), nullptr)) = nullptr;
  link_ = Ref();
  const auto nodes = std::exchange(nodes_, {});
  const auto roots = std::exchange(roots_, {});
  const auto computed = std::exchange(computed_, {});
  const auto classes = std::exchange(classes_, {});
  const auto names = std::exchange(names_, {});
  const auto state = std::exchange(state_, std::nullopt);
}

// ------------------------------------------------------------------------------------------------ fetched values

namespace {

void replace_item(PyObject* tuple, Py_ssize_t index, PyObject* value) {
  PyObject* const old = PyTuple_GET_ITEM(tuple, index);
  PyTuple_SET_ITEM(tuple, index, Py_NewRef(value));
  Py_DECREF(old);
}

Ref copy_of(PyObject* tuple) {
  const Py_ssize_t count = PyTuple_GET_SIZE(tuple);
  Ref copy(PyTuple_New(count));
  if (!copy) PyErr_Clear();
  for (Py_ssize_t i = 0; copy && i < count; ++i) {
    PyTuple_SET_ITEM(copy.get(), i, Py_NewRef(PyTuple_GET_ITEM(tuple, i)));
  }
  return copy;
}

}  // namespace

// The tuple is kept and handed out again while nothing changes, so that 400 parameters cost no looking up. Where values
// differ from call to call (parameters of the function, live sources) they are put in their places: of the tuple itself
// if the caller borrows it (see return_borrowed) and nobody else holds it, else of a copy. It owns tensors, which must not
// outlive their module for our sake: it is dropped when the module, dataclass, ... dies.
Ref GuardTable::fetch(Run& run, bool borrow) {
  if (fetch_.empty()) return empty_;
  Ref tuple = run.fetched ? std::move(run.fetched) : remembered_fetched(run);
  if (!tuple) return tuple;
  std::vector<int> found;
  const bool is_cached = tuple.get() == fetched_.get();
  if (!is_cached) found = differing_by_call(run);
  const std::vector<int>& differing = is_cached ? differing_ : found;
  if (differing.empty()) return tuple;
  const bool is_ours = is_cached && Py_REFCNT(tuple.get()) == 2;
  Ref filled = borrow && is_ours ? std::move(tuple) : copy_of(tuple.get());
  for (const int i : differing) {
    if (!filled) break;
    replace_item(filled.get(), i, value_of(run, fetch_[i]));
  }
  return filled;
}

// After the call that borrowed the tuple: it must not keep that call's values alive, nor change if somebody kept it.
void GuardTable::return_borrowed(PyObject* tuple) {
  if (tuple != fetched_.get()) return;
  if (Py_REFCNT(tuple) != 2) return drop_fetched();
  const Ref held = Ref::borrow(tuple);  // what dies now may run code that drops it
  const std::vector<int> places = differing_;
  for (const int i : places) replace_item(tuple, i, Py_None);
}

// The fetched values, with None for those that differ from call to call; cached if it can be.
Ref GuardTable::remembered_fetched(Run& run) {
  if (fetched_ && !run.evaluation) return fetched_;
  Ref tuple(PyTuple_New(static_cast<Py_ssize_t>(fetch_.size())));
  for (size_t i = 0; tuple && i < fetch_.size(); ++i) {
    PyObject* value = differs_by_call(run, fetch_[i]) ? Py_None : value_of(run, fetch_[i]);
    PyTuple_SET_ITEM(tuple.get(), i, Py_NewRef(value));
  }
  if (!tuple) PyErr_Clear();
  if (tuple && !run.evaluation && remember && fetched_epoch_ != epoch_) cache_fetched(run, tuple);
  return tuple;
}

std::vector<int> GuardTable::differing_by_call(const Run& run) const {
  std::vector<int> places;
  for (size_t i = 0; i < fetch_.size(); ++i) {
    if (differs_by_call(run, fetch_[i])) places.push_back(static_cast<int>(i));
  }
  return places;
}

bool GuardTable::differs_by_call(const Run& run, int index) const {
  const int root = nodes_[index].root;
  if (index == roots_[root].first) return nodes_[index].kind != Kind::Constant;
  return !run.evaluated[root] && is_live_[index];
}

namespace {

PyObject* on_link_death(PyObject* link, PyObject*) {
  if (auto* table = *static_cast<GuardTable**>(PyCapsule_GetPointer(link, nullptr))) table->drop_fetched();
  Py_RETURN_NONE;
}

PyMethodDef on_link_death_method = {"on_death", method<on_link_death>(), METH_O, nullptr};

void free_link(PyObject* capsule) {
  delete static_cast<GuardTable**>(PyCapsule_GetPointer(capsule, nullptr));
}

Ref make_link(GuardTable* table) {
  auto* place = new GuardTable*(table);
  Ref capsule(PyCapsule_New(place, nullptr, free_link));
  if (!capsule) delete place;
  return capsule;
}

}  // namespace

// The object whose death means that the fetched value is no longer needed: the argument, or what the global names.
// Null if there is none that is weakly referenced and is not the fetched value itself.
PyObject* GuardTable::anchor_of(Run& run, int index) {
  const Root& root = roots_[nodes_[index].root];
  int anchor = index;
  const bool below = nodes_[root.first].kind == Kind::Constant;
  while (nodes_[anchor].parent >= 0 && !(below && nodes_[anchor].parent == root.first)) anchor = nodes_[anchor].parent;
  PyObject* object = value_of(run, anchor);
  return anchor != index && PyType_SUPPORTS_WEAKREFS(Py_TYPE(object)) ? object : nullptr;
}

void GuardTable::cache_fetched(Run& run, const Ref& tuple) {
  fetched_epoch_ = epoch_;
  std::vector<PyObject*> anchors;
  for (const int node : fetch_) {
    if (differs_by_call(run, node)) continue;
    PyObject* anchor = anchor_of(run, node);
    if (anchor == nullptr) return;
    if (anchors.empty() || anchors.back() != anchor) anchors.push_back(anchor);
  }
  std::sort(anchors.begin(), anchors.end());
  anchors.erase(std::unique(anchors.begin(), anchors.end()), anchors.end());
  if (!link_) link_ = make_link(this);
  const Ref callback(link_ ? PyCFunction_New(&on_link_death_method, link_.get()) : nullptr);
  std::vector<Ref> references;
  for (PyObject* anchor : anchors) {
    references.emplace_back(callback ? PyWeakref_NewRef(anchor, callback.get()) : nullptr);
    if (!references.back()) {
      PyErr_Clear();
      return;
    }
  }
  anchors_ = std::move(references);
  differing_ = differing_by_call(run);
  fetched_ = tuple;
}

void GuardTable::drop_fetched() {
  const Ref tuple = std::exchange(fetched_, Ref());
  const auto anchors = std::exchange(anchors_, {});
}

}  // namespace torchglass
