// The guard table of one entry: a tree of sources, conditions on them, and the values to fetch for the entry.
//
// Python builds it (runtime/guards.py), the dispatcher asks it on every call. There are two ways to an answer:
//
//   evaluate  (guard_table.cpp)  walks every source from its root and checks every condition.
//   remember  (guard_memo.cpp)   after two successes with the same root object: compares versions of dicts and pointers
//                                and checks only what versions do not cover. See there for why that is sound.
#pragma once

#include "checks.h"
#include "dict_versions.h"
#include "global_state.h"
#include "integers.h"
#include "native.h"

#include <c10/util/SmallVector.h>

#include <optional>
#include <string>
#include <vector>

namespace torchglass {

enum class Kind : uint8_t { Local, Constant, Cell, Attribute, InstanceDict, Item, DictKey, TypeOf, Referent };

// Where a source's value came from in one evaluation; decides what the memo has to look at again.
enum class Provenance : uint8_t {
  Root,
  DictItem,      // an item or key of a plain dict: covered by that dict's version
  SequenceItem,  // an item of an exact list or tuple
  InstanceDict,
  TypeOf,
  ModuleItem,    // an attribute of an exact module object, found in its dict
  Live,          // anything else: may run Python code, evaluated on every call
};

struct Node {
  Kind kind = Kind::Local;
  int parent = -1;
  int root = -1;         // index into GuardTable::roots
  Ref key;               // the item's key, the attribute's name, the constant, the cell
  Py_ssize_t index = 0;  // which local; position in a sequence or of a dict key
  bool key_is_index = false;
  std::vector<int> children;
  std::vector<Condition> conditions;
};

// One thing the remembered path looks at. Pointers are borrowed; see guard_memo.cpp.
enum class StepKind : uint8_t { Condition, Version, InstanceDict, SequenceItem, TypeOf, ModuleItem };

constexpr int32_t no_dict = INT32_MIN;

struct Step {
  StepKind kind;
  bool counted;          // `mutations` tells of a change, of an object that versions of dicts show to be the same
  uint16_t condition;    // for Condition: which of the node's
  union {
    int32_t node;
    int32_t dict;        // for InstanceDict: how far from the object the pointer to its dict is
  };
  PyObject* object;      // what to look at
  PyTypeObject* type;    // its type then; null where that cannot change
  union {
    PyObject* value;      // what was found in it
    DictVersion version;  // for Version and ModuleItem: the dict's then
  };
};

struct LiveStep {
  int node;
  int condition;    // -1: evaluate the node; otherwise check this condition of a remembered node
};

// What is known about a root after successful evaluations.
struct Memo {
  PyObject* seen = nullptr;  // the root's value at the last success, compared and never followed
  bool ready = false;
  uint64_t generation = 0;
  std::vector<Step> steps;
  bool asks_for_changes = false;  // whether dict_changes() may answer for the dicts, which are many
  std::vector<Step> loose;       // those of them that no dict's version answers, nor mutations()
  std::vector<Step> counted;     // those that mutations() answers
  std::vector<PyObject*> empty;  // dicts that must be
  std::vector<TensorSnapshot> tensors;
  std::vector<TensorSnapshot> counted_tensors;
  uint64_t last_dict_epoch = UINT64_MAX;  // dict_changes() when all held
  uint64_t settled_at = UINT64_MAX;       // mutations() when all that they answer held
  std::vector<LiveStep> live;
};

struct Root {
  int first = 0;  // its nodes are [first, last), a parent before its children
  int last = 0;
  bool leaf = false;
  Memo memo;
};

// Sources whose objects must all differ.
struct Distinct {
  std::vector<int> nodes;
  std::vector<PyObject*> remembered;  // sorted pointers of the remembered members, valid for `epoch`
  std::vector<int> fresh;             // members that may differ on every call
  uint64_t epoch = 0;
};

// A constant that functions of builtins compute from sources: postfix, `(i + 1) % 4` is i 1 add 4 remainder.
struct Computed {
  struct Operation {
    int node = -1;   // push this source's value
    int dim = -1;    // or the size of this dimension of it, of a tensor
    bool stride = false;  // or its stride
    Ref object;      // or this constant, or what this function gives for the last `arity` values
    int arity = -1;
    IntegerOperator integer = IntegerOperator::None;  // the same function, where it is one of `operator`
  };
  std::vector<Operation> operations;
  Ref expected;
};

// What is asked of one class. Its version (PEP 509's like for types) changes with it and with its bases, and is given to
// no other: while it is the one at which all held, nothing is looked up.
struct ClassFacts {
  Ref type;
  unsigned int version = 0;  // 0 is no version
  std::vector<Condition> conditions;

  bool hold() {
    return (version != 0 && reinterpret_cast<PyTypeObject*>(type.get())->tp_version_tag == version) || hold_anew();
  }
  bool hold_anew();
};

// What stands under names of a library module: while the dict's version is the same, nothing is looked up.
struct NameFacts {
  Ref dict;
  DictVersion version{nullptr, 0};
  std::vector<std::pair<Ref, Ref>> names;

  bool hold() { return (version.place != nullptr && version.is_current()) || hold_anew(); }
  bool hold_anew();
};

struct Evaluation {
  std::vector<Ref> values;      // by node
  std::vector<Provenance> provenances;
  std::vector<DictVersion> versions;         // of a value that is a dict, read before its items
  std::vector<DictVersion> module_versions;  // of the dict of the module whose attribute the value is
};

// The state of one check.
struct Run {
  PyObject* const* locals = nullptr;
  c10::SmallVector<PyObject*, 16> root_values;
  c10::SmallVector<uint8_t, 16> evaluated;   // by root
  c10::SmallVector<Ref, 4> held;             // keeps contents of cells alive
  std::optional<Evaluation> evaluation;
  c10::SmallVector<Ref, 4> live;             // by live_slots_, if any node is live
  Ref fetched;                               // what remembered roots contribute, while live nodes are evaluated
};

class GuardTable {
 public:
  // See guard_table_type.cpp for the arguments; false with an exception set.
  bool build(PyObject* nodes, PyObject* conditions, PyObject* relations, PyObject* state, PyObject* fetch);

  // The fetched tuple, or null if a guard fails. Leaves no exception set. `borrow`: it comes back by return_borrowed.
  Ref check(PyObject* const* locals, Py_ssize_t count, bool borrow = false);
  void return_borrowed(PyObject* tuple);

  int traverse(visitproc visit, void* arg);
  void clear();
  void forget();          // drop everything remembered
  void drop_fetched();
  bool remembers() const;

  bool remember = dicts_have_versions();
  Py_ssize_t evaluations = 0;  // how often a root was evaluated in full

 private:
  // guard_table_type.cpp
  bool add_node(PyObject* tuple);
  bool add_relation(PyObject* tuple);
  bool add_computed(PyObject* operations, PyObject* expected);
  bool add_class(PyObject* type, PyObject* conditions);
  bool add_names(PyObject* dict, PyObject* names);

  // guard_table.cpp
  bool read_root_values(Run& run);
  bool check_leaf(const Root& root, PyObject* value) const;
  bool is_known(const Root& root, PyObject* value) const;
  bool evaluate_root(Run& run, int root);
  Ref evaluate_node(const Node& node, PyObject* parent, bool parent_is_live, Provenance& provenance) const;
  PyObject* value_of(Run& run, int node);
  Ref check_once(PyObject* const* locals, bool borrow, bool& again);
  bool check_relations(Run& run, bool unchanged);
  bool check_distinct(Run& run, Distinct& group, bool unchanged);
  bool check_computed(Run& run, const Computed& computed);
  std::optional<bool> check_integers(Run& run, const Computed& computed);

  // guard_memo.cpp
  enum class Sweep { Holds, Fails, Again };
  bool run_roots(Run& run);
  Sweep sweep_root(Root& root);
  Sweep sweep_steps(Root& root, bool settled);
  bool all_hold(const std::vector<Step>& steps) const;
  bool step_holds(const Step& step) const;
  Sweep look_again(Root& root, size_t index);
  bool same_children(int index, PyObject* dict);
  bool same_module_item(const Step& step, PyObject* dict);
  bool holds_purely(const Node& node, PyObject* value) const;
  bool run_live(Run& run);
  bool run_live_step(Run& run, const LiveStep& step);
  void commit(Run& run);
  void remember_evaluated(Run& run);
  void promote(const Evaluation& evaluation, Root& root);
  void place_live();
  bool must_be_empty(const Evaluation& evaluation, int index) const;
  void add_step(const Evaluation& evaluation, Memo& memo, int index);
  bool add_conditions(const Evaluation& evaluation, Memo& memo, int index);
  bool remember_condition(Memo& memo, int index, int number, PyObject* value, Provenance provenance);
  void add_version(const Evaluation& evaluation, Memo& memo, int index, bool needed);
  Ref fetch(Run& run, bool borrow);
  Ref remembered_fetched(Run& run);
  bool differs_by_call(const Run& run, int index) const;
  std::vector<int> differing_by_call(const Run& run) const;
  void cache_fetched(Run& run, const Ref& tuple);
  PyObject* anchor_of(Run& run, int node);

  std::vector<Node> nodes_;
  std::vector<Root> roots_;
  std::vector<int> fetch_;
  std::vector<std::pair<int, int>> same_;
  std::vector<Distinct> distinct_;
  std::vector<Computed> computed_;
  std::vector<ClassFacts> classes_;
  std::vector<NameFacts> names_;
  std::optional<GlobalState> state_;
  Py_ssize_t locals_needed_ = 0;
  bool alive_ = false;

  std::vector<PyObject*> values_;   // by node, of remembered roots: borrowed
  std::vector<uint8_t> is_live_;    // by node, of remembered roots
  std::vector<int32_t> live_slots_;  // by node: where in Run::live, -1 if never there
  int32_t live_count_ = 0;
  uint64_t epoch_ = 1;
  Ref empty_;
  Ref fetched_;                     // the cached tuple
  std::vector<int> differing_;      // its places whose values differ from call to call
  uint64_t fetched_epoch_ = 0;      // when caching was last tried
  std::vector<Ref> anchors_;        // weak references whose death drops it
  Ref link_;                        // a capsule through which their callback finds the table
};

extern PyTypeObject guard_table_type;
GuardTable* guard_table_of(PyObject* object);  // `object` is an instance of guard_table_type
int add_guard_table(PyObject* module);

}  // namespace torchglass
