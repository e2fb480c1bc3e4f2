// GuardTable as Python sees and builds it.
//
//   GuardTable(nodes, conditions, relations, state, fetch)
//       nodes       tuple of (kind, parent, key): kind is "local" (key: index), "constant" (key: the object), "cell"
//                   (key: the cell), "attribute" (key: name), "instance_dict", "item" (key: its key), "dict_key" (key:
//                   position), "type_of"; parent is an index, -1 for the first three. A root is followed by its
//                   descendants, parents first.
//       conditions  tuple of (node, check, expected), expected in native form (TensorFacts::from_tuple, ...)
//       relations   tuple of ("same", (a, b)) or ("distinct", (a, b, c, ...)) over node indices, or of ("computed",
//                   operations, expected): in postfix order (node,), (node, dim, None) for the size of a tensor,
//                   (constant, None) or (builtin function, arity), or of ("class", type, conditions), each
//                   (check, expected), or of ("names", dict, pairs), each (name, object)
//       state       what global_state() returned, or None
//       fetch       tuple of node indices
//   table.check(locals: tuple) -> tuple of fetched values, or None
//   table.forget()              drops what is remembered
//   table.remember: bool        whether to remember at all (for tests and measurements)
//   table.remembers: bool       whether the next call with the same objects takes the remembered path
//   table.evaluations: int      how often a root was evaluated in full
//
// Example: GuardTable((("local", -1, 0),), ((0, "type", int),), (), None, (0,)).check((3,)) == (3,)
#include "guard_table.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <unordered_map>

namespace torchglass {
namespace {

struct KindRow {
  const char* name;
  Kind kind;
};

const KindRow kinds[] = {
    {"local", Kind::Local},         {"constant", Kind::Constant},
    {"cell", Kind::Cell},           {"attribute", Kind::Attribute},
    {"instance_dict", Kind::InstanceDict}, {"item", Kind::Item},
    {"dict_key", Kind::DictKey},    {"type_of", Kind::TypeOf},
    {"referent", Kind::Referent},
};

bool is_root(Kind kind) {
  return kind == Kind::Local || kind == Kind::Constant || kind == Kind::Cell;
}

bool read_kind(const char* name, Kind& out) {
  for (const KindRow& row : kinds) {
    if (std::strcmp(row.name, name) == 0) {
      out = row.kind;
      return true;
    }
  }
  PyErr_Format(PyExc_ValueError, "unknown kind of node %s", name);
  return false;
}

bool read_key(Node& node, PyObject* key) {
  node.key = Ref::borrow(key);
  if (node.kind == Kind::Local || node.kind == Kind::DictKey) {
    node.index = PyLong_AsSsize_t(key);
    if (node.index == -1 && PyErr_Occurred()) return false;
    if (node.index >= 0 && node.index < INT_MAX) return true;
    PyErr_SetString(PyExc_ValueError, "a node's index must not be negative, nor past 2**31 - 2");
    return false;
  }
  if (node.kind == Kind::Item && PyLong_CheckExact(key)) {
    node.index = PyLong_AsSsize_t(key);
    node.key_is_index = !PyErr_Occurred();
    PyErr_Clear();
  }
  const bool fits = (node.kind != Kind::Cell || PyCell_Check(key)) &&
      (node.kind != Kind::Attribute || PyUnicode_CheckExact(key));
  if (!fits) PyErr_SetString(PyExc_TypeError, "a cell node takes a cell, an attribute node a str");
  return fits;
}

}  // namespace

// ------------------------------------------------------------------------------------------------ building

bool GuardTable::add_node(PyObject* tuple) {
  const char* kind = nullptr;
  PyObject* key = nullptr;
  Node node;
  if (!PyArg_ParseTuple(tuple, "siO", &kind, &node.parent, &key) || !read_kind(kind, node.kind)) return false;
  if (!read_key(node, key)) return false;
  const int index = static_cast<int>(nodes_.size());
  if (is_root(node.kind)) {
    node.parent = -1;
    node.root = static_cast<int>(roots_.size());
    roots_.emplace_back();
    roots_.back().first = index;
    if (node.kind == Kind::Local) locals_needed_ = std::max(locals_needed_, node.index + 1);
  } else if (roots_.empty() || node.parent < roots_.back().first || node.parent >= index) {
    PyErr_SetString(PyExc_ValueError, "a node must follow its parent, within its root");
    return false;
  } else {
    node.root = static_cast<int>(roots_.size()) - 1;
    nodes_[node.parent].children.push_back(index);
  }
  nodes_.push_back(std::move(node));
  roots_.back().last = index + 1;
  return true;
}

namespace {

bool read_index(PyObject* object, size_t limit, int& out) {
  const long index = PyLong_AsLong(object);
  if (index == -1 && PyErr_Occurred()) return false;
  if (index < 0 || static_cast<size_t>(index) >= limit) {
    PyErr_Format(PyExc_ValueError, "there is no node %ld", index);
    return false;
  }
  out = static_cast<int>(index);
  return true;
}

bool read_indices(PyObject* tuple, size_t limit, std::vector<int>& out) {
  if (!expect_tuple(tuple, "GuardTable: node indices")) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    int index = 0;
    if (!read_index(PyTuple_GET_ITEM(tuple, i), limit, index)) return false;
    out.push_back(index);
  }
  return true;
}

using SharedFacts = std::unordered_map<PyObject*, std::shared_ptr<TensorFacts>>;

// Tensors that expect the same tuple share its facts.
bool add_condition(PyObject* tuple, std::vector<Node>& nodes, SharedFacts& shared) {
  PyObject *where = nullptr, *expected = nullptr;
  const char* name = nullptr;
  int node = 0;
  Condition condition;
  if (!PyArg_ParseTuple(tuple, "OsO", &where, &name, &expected) || !read_index(where, nodes.size(), node) ||
      !Condition::make(name, expected, condition)) {
    return false;
  }
  if (condition.tensor) condition.tensor = shared.try_emplace(expected, condition.tensor).first->second;
  nodes[node].conditions.push_back(std::move(condition));
  return true;
}

// function(item) for the items of a tuple of tuples, until one is false.
template <class Function>
bool for_each(PyObject* tuple, const char* what, Function function) {
  if (!expect_tuple(tuple, what)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    PyObject* item = PyTuple_GET_ITEM(tuple, i);
    if (!PyTuple_Check(item)) {
      PyErr_Format(PyExc_TypeError, "%s must hold tuples, not %.200s", what, Py_TYPE(item)->tp_name);
      return false;
    }
    if (!function(item)) return false;
  }
  return true;
}

}  // namespace

bool GuardTable::add_relation(PyObject* tuple) {
  const char* name = nullptr;
  PyObject *members = nullptr, *expected = nullptr;
  std::vector<int> indices;
  if (!PyArg_ParseTuple(tuple, "sO|O", &name, &members, &expected)) return false;
  if (std::strcmp(name, "computed") == 0 && expected != nullptr) return add_computed(members, expected);
  if (std::strcmp(name, "class") == 0 && expected != nullptr) return add_class(members, expected);
  if (std::strcmp(name, "names") == 0 && expected != nullptr) return add_names(members, expected);
  if (!read_indices(members, nodes_.size(), indices)) return false;
  if (std::strcmp(name, "same") == 0 && indices.size() == 2) {
    same_.emplace_back(indices[0], indices[1]);
  } else if (std::strcmp(name, "distinct") == 0) {
    distinct_.emplace_back();
    distinct_.back().nodes = std::move(indices);
  } else {
    PyErr_Format(PyExc_ValueError, "unknown relation %s", name);
    return false;
  }
  return true;
}

bool GuardTable::add_computed(PyObject* operations, PyObject* expected) {
  Computed computed;
  computed.expected = Ref::borrow(expected);
  int depth = 0;
  const auto add = [&](PyObject* tuple) {
    PyObject *object = nullptr, *arity = nullptr, *size = nullptr;
    Computed::Operation operation;
    if (!PyArg_ParseTuple(tuple, "O|OO", &object, &arity, &size)) return false;
    if (arity == nullptr || size != nullptr) {
      if (!read_index(object, nodes_.size(), operation.node)) return false;
      if (size != nullptr && !read_index(arity, INT_MAX, operation.dim)) return false;
      operation.stride = size == Py_True;
    } else {
      operation.object = Ref::borrow(object);
      if (arity != Py_None) operation.arity = static_cast<int>(std::clamp(PyLong_AsLong(arity), -1L, long{INT_MAX}));
      if (PyErr_Occurred()) return false;
      if (operation.arity == 2) operation.integer = integer_operator(object);
    }
    depth += operation.arity < 0 ? 1 : 1 - operation.arity;
    const bool builtin =
        PyCFunction_Check(object) || PyType_Check(object) || Py_IS_TYPE(object, &PyMethodDescr_Type);
    const bool fits = depth > 0 && (operation.arity < 0 || builtin);
    if (!fits) PyErr_SetString(PyExc_ValueError, "an operation takes builtin functions, and values that are there");
    computed.operations.push_back(std::move(operation));
    return fits;
  };
  if (!for_each(operations, "GuardTable: operations", add)) return false;
  if (depth == 1) {
    computed_.push_back(std::move(computed));
    return true;
  }
  PyErr_SetString(PyExc_ValueError, "operations must leave one value");
  return false;
}

bool GuardTable::add_class(PyObject* type, PyObject* conditions) {
  ClassFacts facts;
  facts.type = Ref::borrow(type);
  const auto add = [&](PyObject* tuple) {
    const char* name = nullptr;
    PyObject* expected = nullptr;
    Condition condition;
    if (!PyArg_ParseTuple(tuple, "sO", &name, &expected) || !Condition::make(name, expected, condition)) return false;
    const bool fits = condition.is_about_class();
    if (!fits) PyErr_Format(PyExc_ValueError, "%s is no condition on a class", name);
    facts.conditions.push_back(std::move(condition));
    return fits;
  };
  if (!PyType_Check(type)) {
    PyErr_Format(PyExc_TypeError, "GuardTable: a class is a type, not %.200s", Py_TYPE(type)->tp_name);
    return false;
  }
  if (!for_each(conditions, "GuardTable: conditions on a class", add)) return false;
  classes_.push_back(std::move(facts));
  return true;
}

bool GuardTable::add_names(PyObject* dict, PyObject* names) {
  NameFacts facts;
  facts.dict = Ref::borrow(dict);
  const auto add = [&](PyObject* tuple) {
    PyObject *name = nullptr, *object = nullptr;
    if (!PyArg_ParseTuple(tuple, "UO", &name, &object)) return false;
    facts.names.emplace_back(Ref::borrow(name), Ref::borrow(object));
    return true;
  };
  if (!PyDict_CheckExact(dict)) {
    PyErr_Format(PyExc_TypeError, "GuardTable: names are those of a dict, not %.200s", Py_TYPE(dict)->tp_name);
    return false;
  }
  if (!for_each(names, "GuardTable: names", add)) return false;
  names_.push_back(std::move(facts));
  return true;
}

bool GuardTable::build(PyObject* nodes, PyObject* conditions, PyObject* relations, PyObject* state, PyObject* fetch) {
  SharedFacts shared;
  const auto node = [this](PyObject* tuple) { return add_node(tuple); };
  const auto condition = [&](PyObject* tuple) { return add_condition(tuple, nodes_, shared); };
  const auto relation = [this](PyObject* tuple) { return add_relation(tuple); };
  if (!for_each(nodes, "GuardTable: nodes", node) || !for_each(conditions, "GuardTable: conditions", condition) ||
      !for_each(relations, "GuardTable: relations", relation) || !read_indices(fetch, nodes_.size(), fetch_)) {
    return false;
  }
  if (state != Py_None && !GlobalState::from_tuple(state, state_.emplace())) return false;
  for (Root& root : roots_) root.leaf = root.last == root.first + 1;
  values_.assign(nodes_.size(), nullptr);
  is_live_.assign(nodes_.size(), 0);
  live_slots_.assign(nodes_.size(), -1);
  empty_ = Ref(PyTuple_New(0));
  alive_ = static_cast<bool>(empty_);
  return alive_;
}

// ------------------------------------------------------------------------------------------------ the Python type

namespace {

struct GuardTableObject {
  PyObject_HEAD
  GuardTable* table;
};

PyObject* table_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"nodes", "conditions", "relations", "state", "fetch", nullptr};
  PyObject *nodes, *conditions, *relations, *state, *fetch;
  if (!PyArg_ParseTupleAndKeywords(
          args, kwargs, "O!O!O!OO!:GuardTable", const_cast<char**>(names), &PyTuple_Type, &nodes, &PyTuple_Type,
          &conditions, &PyTuple_Type, &relations, &state, &PyTuple_Type, &fetch)) {
    return nullptr;
  }
  auto* self = reinterpret_cast<GuardTableObject*>(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  Ref owner(reinterpret_cast<PyObject*>(self));
  self->table = new GuardTable();
  if (!self->table->build(nodes, conditions, relations, state, fetch)) return nullptr;
  return owner.release();
}

int table_traverse(PyObject* object, visitproc visit, void* arg) {
  GuardTable* table = guard_table_of(object);
  return table != nullptr ? table->traverse(visit, arg) : 0;
}

int table_clear(PyObject* object) {
  if (GuardTable* table = guard_table_of(object)) table->clear();
  return 0;
}

void table_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  table_clear(object);
  delete guard_table_of(object);
  Py_TYPE(object)->tp_free(object);
}

PyObject* table_check(PyObject* object, PyObject* locals) {
  if (!PyTuple_Check(locals)) {
    PyErr_SetString(PyExc_TypeError, "check takes the tuple of the function's parameters");
    return nullptr;
  }
  const auto* items = reinterpret_cast<PyTupleObject*>(locals)->ob_item;
  Ref fetched = guard_table_of(object)->check(items, PyTuple_GET_SIZE(locals));
  if (!fetched) Py_RETURN_NONE;
  return fetched.release();
}

PyObject* table_forget(PyObject* object, PyObject*) {
  guard_table_of(object)->forget();
  Py_RETURN_NONE;
}

PyObject* get_remember(PyObject* object, void*) {
  return PyBool_FromLong(guard_table_of(object)->remember);
}

int set_remember(PyObject* object, PyObject* value, void*) {
  const int truth = value != nullptr ? PyObject_IsTrue(value) : 0;
  if (truth < 0) return -1;
  guard_table_of(object)->forget();
  guard_table_of(object)->remember = truth != 0;
  return 0;
}

PyObject* get_remembers(PyObject* object, void*) {
  return PyBool_FromLong(guard_table_of(object)->remembers());
}

PyObject* get_evaluations(PyObject* object, void*) {
  return PyLong_FromSsize_t(guard_table_of(object)->evaluations);
}

PyMethodDef table_methods[] = {
    {"check", method<table_check>(), METH_O, "check(locals): the fetched tuple, or None if a guard fails."},
    {"forget", method<table_forget>(), METH_NOARGS, "forget(): drop everything remembered from earlier calls."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef table_properties[] = {
    {"remember", entry<get_remember>, entry<set_remember>, "whether to remember successful checks", nullptr},
    {"remembers", entry<get_remembers>, nullptr, "whether every root is remembered", nullptr},
    {"evaluations", entry<get_evaluations>, nullptr, "how often a root was evaluated in full", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace

PyTypeObject guard_table_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

GuardTable* guard_table_of(PyObject* object) {
  return reinterpret_cast<GuardTableObject*>(object)->table;
}

int GuardTable::traverse(visitproc visit, void* arg) {
  for (const Node& node : nodes_) {
    Py_VISIT(node.key.get());
    for (const Condition& condition : node.conditions) Py_VISIT(condition.expected.get());
  }
  for (const Computed& computed : computed_) {
    for (const Computed::Operation& operation : computed.operations) Py_VISIT(operation.object.get());
    Py_VISIT(computed.expected.get());
  }
  for (const ClassFacts& facts : classes_) {
    Py_VISIT(facts.type.get());
    for (const Condition& condition : facts.conditions) Py_VISIT(condition.expected.get());
  }
  for (const NameFacts& facts : names_) {
    Py_VISIT(facts.dict.get());
    for (const auto& [name, object] : facts.names) Py_VISIT(object.get());
  }
  Py_VISIT(fetched_.get());
  if (state_) {
    Py_VISIT(state_->function_modes.get());
    Py_VISIT(state_->dispatch_modes.get());
  }
  return 0;
}

namespace {

PyObject* set_many_dicts(PyObject*, PyObject* count) {
  const size_t number = PyLong_AsSize_t(count);
  if (PyErr_Occurred() != nullptr) return nullptr;
  return PyLong_FromSize_t(std::exchange(many_dicts, number));
}

PyMethodDef guard_table_type_functions[] = {
    {"set_many_dicts", method<set_many_dicts>(), METH_O,
     "From how many dicts on a table asks first whether any has changed; returns what it was. For tests."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_guard_table(PyObject* module) {
  guard_table_type.tp_name = "torchglass._native.GuardTable";
  guard_table_type.tp_doc = "GuardTable(nodes, conditions, relations, state, fetch): the guards of one entry.";
  guard_table_type.tp_basicsize = sizeof(GuardTableObject);
  guard_table_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC;
  guard_table_type.tp_new = entry<table_new>;
  guard_table_type.tp_dealloc = quiet_entry<table_dealloc>;
  guard_table_type.tp_traverse = quiet_entry<table_traverse>;
  guard_table_type.tp_clear = entry<table_clear>;
  guard_table_type.tp_methods = table_methods;
  guard_table_type.tp_getset = table_properties;
  if (PyType_Ready(&guard_table_type) < 0 || PyModule_AddFunctions(module, guard_table_type_functions) < 0) return -1;
  return PyModule_AddObjectRef(module, "GuardTable", reinterpret_cast<PyObject*>(&guard_table_type));
}

}  // namespace torchglass
