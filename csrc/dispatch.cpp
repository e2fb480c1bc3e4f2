// The compiled function: what the user calls instead of the Python function.
//
//   CompiledFunction(function, miss, bound: tuple = ()) -> callable
//       A call binds its arguments to the parameters of `function` (co_varnames order: positional, keyword-only,
//       *args, **kwargs; defaults as they are at the call), asks the guard table of each entry, most recent hit first,
//       and on a hit calls entry(*parameters, fetched). If no table holds it returns miss(parameters: tuple), which
//       compiles, adds an entry and returns the call's result. Arguments that do not bind go to `function`, whose
//       TypeError is then the user's. `bound` are constant first arguments, as of a method bound to a module.
//   compiled.add_entry(table: GuardTable, entry: callable); compiled.clear()
//   compiled.entries: tuple of (table, entry); compiled.hits, compiled.misses: int
//   compiled.add_plain(table)   calls that no entry takes and that this table takes go to `function`: past the cache limit
//   compiled.disabled: bool     True: all calls go to `function`; so they do if its code is replaced
//   compiled.continues: bool    True: entries return what it returns: tail_calls.h
//   compiled.region: Region or None    what calls that go to `function` for being disabled are watched by: frame_hook.cpp
//   compiled.function, compiled.miss, compiled.bound
//   compiled.function_state: object    what compiles for it, owned by it
//   set_detour(detour: int)     for all of them (torchglass/switching/stance.py): 0 nothing; 1 calls go to `function`;
//                               2 calls go to `miss`, whatever entries there are
//
// It binds to objects as functions do (unless `bound`), has a __dict__, can be weakly referenced, pickled and copied by
// reference. Attributes it lacks (__code__, __defaults__, __globals__, ...) are those of `function`. Deep copying one
// with `bound` calls its attribute `rebuild(bound)` with the copied objects.
#include "frame_hook.h"
#include "guard_table.h"
#include "native.h"
#include "stack.h"
#include "tail_calls.h"

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <memory>

namespace torchglass {
namespace {

struct CompiledFunction {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject* function;
  PyObject* code;      // of `function` when this was made
  PyObject* varnames;  // its co_varnames
  PyObject* miss;
  PyObject* bound;
  PyObject* entries;  // replaced and never changed, so a call may go on with the tuple it started with
  PyObject* plain;    // tables, likewise
  PyObject* region;   // or None
  PyObject* state;    // or null: what compiles for it
  PyObject* dict;
  PyObject* weak_references;
  Py_ssize_t hits;
  Py_ssize_t misses;
  char disabled;
  char continues;
};

// What set_detour said.
enum Detour : int { kNone = 0, kFunction = 1, kMiss = 2 };
int detour = kNone;

CompiledFunction* as_compiled(PyObject* object) {
  return reinterpret_cast<CompiledFunction*>(object);
}

// ------------------------------------------------------------------------------------------------ binding

// The values of all parameters, owned, with room for one before (vectorcall may borrow it) and one after, for the fetched
// tuple, which is borrowed.
class Parameters {
 public:
  explicit Parameters(size_t count) : size_(count) {
    if (count + 2 > few) many_.reset(new PyObject*[count + 2]);
    slots_ = many_ ? many_.get() : inline_;
    std::fill_n(slots_, count + 2, nullptr);
  }
  ~Parameters() {
    for (size_t i = 1; i < size_ + 1; ++i) Py_XDECREF(slots_[i]);
  }
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  size_t size() const { return size_; }
  PyObject* const* values() const { return slots_ + 1; }
  PyObject* operator[](size_t i) const { return slots_[i + 1]; }
  void set(size_t i, PyObject* owned) { slots_[i + 1] = owned; }

  // entry(*parameters, fetched), all borrowed.
  PyObject* call(PyObject* entry, PyObject* fetched) {
    slots_[size_ + 1] = fetched;
    PyObject* result = PyObject_Vectorcall(entry, values(), (size() + 1) | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
    slots_[size_ + 1] = nullptr;
    return result;
  }

  Ref as_tuple() const {
    Ref tuple(PyTuple_New(static_cast<Py_ssize_t>(size())));
    for (size_t i = 0; tuple && i < size(); ++i) PyTuple_SET_ITEM(tuple.get(), i, Py_NewRef((*this)[i]));
    return tuple;
  }

 private:
  static constexpr size_t few = 20;
  size_t size_;
  PyObject** slots_;
  PyObject* inline_[few];
  std::unique_ptr<PyObject*[]> many_;
};

// Arguments as vectorcall passes them, after the constant first ones.
struct Arguments {
  PyObject* bound;
  PyObject* const* items;
  Py_ssize_t positional;
  PyObject* names;  // tuple or null

  Py_ssize_t count() const { return PyTuple_GET_SIZE(bound) + positional; }
  Py_ssize_t keywords() const { return names != nullptr ? PyTuple_GET_SIZE(names) : 0; }
  PyObject* at(Py_ssize_t i) const {
    const Py_ssize_t first = PyTuple_GET_SIZE(bound);
    return i < first ? PyTuple_GET_ITEM(bound, i) : items[i - first];
  }
};

// The parameters of a code object.
struct Shape {
  explicit Shape(PyCodeObject* code)
      : positional(code->co_argcount),
        positional_only(code->co_posonlyargcount),
        named(code->co_argcount + code->co_kwonlyargcount),
        has_varargs((code->co_flags & CO_VARARGS) != 0),
        has_varkeywords((code->co_flags & CO_VARKEYWORDS) != 0) {}

  Py_ssize_t positional;
  Py_ssize_t positional_only;
  Py_ssize_t named;
  bool has_varargs;
  bool has_varkeywords;

  Py_ssize_t total() const { return named + has_varargs + has_varkeywords; }
};

// The index of the parameter that a keyword names, -1 if there is none.
Py_ssize_t find_parameter(PyObject* varnames, const Shape& shape, PyObject* keyword) {
  for (Py_ssize_t i = shape.positional_only; i < shape.named; ++i) {
    if (PyTuple_GET_ITEM(varnames, i) == keyword) return i;
  }
  for (Py_ssize_t i = shape.positional_only; i < shape.named; ++i) {
    if (PyUnicode_Compare(PyTuple_GET_ITEM(varnames, i), keyword) == 0) return i;
  }
  return -1;
}

bool bind_positional(const Arguments& given, const Shape& shape, Parameters& out) {
  const Py_ssize_t count = std::min(given.count(), shape.positional);
  for (Py_ssize_t i = 0; i < count; ++i) out.set(i, Py_NewRef(given.at(i)));
  if (!shape.has_varargs) return given.count() <= shape.positional;
  PyObject* rest = PyTuple_New(given.count() - count);
  if (rest == nullptr) return false;
  for (Py_ssize_t i = count; i < given.count(); ++i) PyTuple_SET_ITEM(rest, i - count, Py_NewRef(given.at(i)));
  out.set(shape.named, rest);
  return true;
}

bool bind_keywords(const Arguments& given, const Shape& shape, PyObject* varnames, Parameters& out) {
  PyObject* rest = nullptr;
  if (shape.has_varkeywords) {
    rest = PyDict_New();
    if (rest == nullptr) return false;
    out.set(shape.named + shape.has_varargs, rest);
  }
  for (Py_ssize_t i = 0; i < given.keywords(); ++i) {
    PyObject* keyword = PyTuple_GET_ITEM(given.names, i);
    PyObject* value = given.items[given.positional + i];
    const Py_ssize_t index = find_parameter(varnames, shape, keyword);
    if (index >= 0) {
      if (out[index] != nullptr) return false;
      out.set(index, Py_NewRef(value));
    } else if (rest == nullptr || PyDict_SetItem(rest, keyword, value) < 0) {
      return false;
    }
  }
  return true;
}

bool bind_defaults(PyObject* function, const Shape& shape, PyObject* varnames, Parameters& out) {
  PyObject* defaults = PyFunction_GET_DEFAULTS(function);
  const Py_ssize_t first = shape.positional - (defaults != nullptr ? PyTuple_GET_SIZE(defaults) : 0);
  for (Py_ssize_t i = 0; i < shape.positional; ++i) {
    if (out[i] != nullptr) continue;
    if (i < first) return false;
    out.set(i, Py_NewRef(PyTuple_GET_ITEM(defaults, i - first)));
  }
  PyObject* keyword_defaults = PyFunction_GET_KW_DEFAULTS(function);
  for (Py_ssize_t i = shape.positional; i < shape.named; ++i) {
    if (out[i] != nullptr) continue;
    if (keyword_defaults == nullptr) return false;
    PyObject* value = PyDict_GetItemWithError(keyword_defaults, PyTuple_GET_ITEM(varnames, i));
    if (value == nullptr) return false;
    out.set(i, Py_NewRef(value));
  }
  return true;
}

// False if the arguments do not fit; then no exception is set, and calling the function says what is wrong.
bool bind(CompiledFunction* self, const Arguments& given, const Shape& shape, Parameters& out) {
  bool fits = bind_positional(given, shape, out);
  const bool complete = given.count() >= shape.positional && shape.named == shape.positional;
  if (fits && (given.keywords() != 0 || shape.has_varkeywords || !complete)) {
    fits = bind_keywords(given, shape, self->varnames, out) &&
        bind_defaults(self->function, shape, self->varnames, out);
  }
  if (!fits) PyErr_Clear();
  return fits;
}

// ------------------------------------------------------------------------------------------------ calling

PyObject* call_function(CompiledFunction* self, const Arguments& given) {
  const Ref function = Ref::borrow(self->function);
  if (PyTuple_GET_SIZE(given.bound) == 0) {
    return PyObject_Vectorcall(function.get(), given.items, given.positional, given.names);
  }
  const Ref bound = Ref::borrow(given.bound);
  c10::SmallVector<PyObject*, 16> all;
  for (Py_ssize_t i = 0; i < given.count(); ++i) all.push_back(given.at(i));
  for (Py_ssize_t i = 0; i < given.keywords(); ++i) all.push_back(given.items[given.positional + i]);
  return PyObject_Vectorcall(function.get(), all.data(), given.count(), given.names);
}

// Moves the entry that was hit to the front, unless the entries have changed meanwhile.
void move_to_front(CompiledFunction* self, PyObject* entries, Py_ssize_t index) {
  if (index == 0 || self->entries != entries) return;
  const Py_ssize_t count = PyTuple_GET_SIZE(entries);
  PyObject* moved = PyTuple_New(count);
  if (moved == nullptr) {
    PyErr_Clear();
    return;
  }
  PyTuple_SET_ITEM(moved, 0, Py_NewRef(PyTuple_GET_ITEM(entries, index)));
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (i != index) PyTuple_SET_ITEM(moved, i < index ? i + 1 : i, Py_NewRef(PyTuple_GET_ITEM(entries, i)));
  }
  Py_SETREF(self->entries, moved);
}

// The entry whose table holds, and what that fetched.
struct Hit {
  Ref table;
  Ref entry;
  Ref fetched;
};

// The first there is; `entry` is null if there is none. `borrow`: what the table fetched is returned to it after the call.
Hit find(CompiledFunction* self, PyObject* const* parameters, Py_ssize_t count, bool borrow) {
  const Ref alive = Ref::borrow(reinterpret_cast<PyObject*>(self));  // guards may run Python code that drops it
  const Ref entries = Ref::borrow(self->entries);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(entries.get()); ++i) {
    PyObject* pair = PyTuple_GET_ITEM(entries.get(), i);
    PyObject* table = PyTuple_GET_ITEM(pair, 0);
    Ref fetched = guard_table_of(table)->check(parameters, count, borrow);
    if (!fetched) continue;
    ++self->hits;
    move_to_front(self, entries.get(), i);
    return {Ref::borrow(table), Ref::borrow(PyTuple_GET_ITEM(pair, 1)), std::move(fetched)};
  }
  ++self->misses;
  return {};
}

// Whether a call that no entry takes goes to the function.
bool runs_plainly(CompiledFunction* self, PyObject* const* parameters, Py_ssize_t count) {
  const Ref tables = Ref::borrow(self->plain);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tables.get()); ++i) {
    if (guard_table_of(PyTuple_GET_ITEM(tables.get(), i))->check(parameters, count, false)) return true;
  }
  return false;
}

PyObject* run_entry(const Hit& hit, Parameters& parameters) {
  Ref result(parameters.call(hit.entry.get(), hit.fetched.get()));
  guard_table_of(hit.table.get())->return_borrowed(hit.fetched.get());
  return result.release();
}

bool is_plain(CompiledFunction* self) {
  return self->disabled || PyFunction_GET_CODE(self->function) != self->code;
}

PyObject* call_miss(CompiledFunction* self, const Parameters& parameters) {
  const Ref miss = Ref::borrow(self->miss);
  const Ref tuple = parameters.as_tuple();
  return tuple ? PyObject_CallOneArg(miss.get(), tuple.get()) : nullptr;
}

PyObject* call_plainly(CompiledFunction* self, const Arguments& given) {
  if (!self->disabled || self->region == Py_None) return call_function(self, given);
  const Ref region = Ref::borrow(self->region);
  const Watching callees(reinterpret_cast<Region*>(region.get()));
  return call_function(self, given);
}

PyObject* answer(CompiledFunction* self, const Arguments& given) {
  if (detour == kFunction) return call_function(self, given);
  if (is_plain(self)) return call_plainly(self, given);
  const Shape shape(reinterpret_cast<PyCodeObject*>(self->code));
  Parameters parameters(shape.total());
  if (!bind(self, given, shape, parameters)) return call_function(self, given);
  if (detour == kMiss) return call_miss(self, parameters);
  const Ref alive = Ref::borrow(reinterpret_cast<PyObject*>(self));
  const Hit hit = find(self, parameters.values(), shape.total(), true);
  if (hit.entry) return run_entry(hit, parameters);
  return runs_plainly(self, parameters.values(), shape.total()) ? call_function(self, given) : call_miss(self, parameters);
}

PyObject* answer_unwatched(CompiledFunction* self, const Arguments& given) {
  if (watching_threads == 0) return answer(self, given);
  const Watching nothing(nullptr);
  return answer(self, given);
}

PyObject* compiled_call(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* names) {
  ensure_stack();
  CompiledFunction* self = as_compiled(object);
  const Arguments given{self->bound, args, PyVectorcall_NARGS(nargsf), names};
  if (!self->continues) {
    TailCalls calls;
    return calls.finish(answer_unwatched(self, given));
  }
  if (too_deep() && names == nullptr) return defer(object, args, given.positional);
  const Deeper deeper;
  return answer_unwatched(self, given);
}

// ------------------------------------------------------------------------------------------------ the Python type

PyObject* compiled_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"function", "miss", "bound", nullptr};
  PyObject *function = nullptr, *miss = nullptr, *bound = nullptr;
  if (!PyArg_ParseTupleAndKeywords(
          args, kwargs, "O!O|O!:CompiledFunction", const_cast<char**>(names), &PyFunction_Type, &function, &miss,
          &PyTuple_Type, &bound)) {
    return nullptr;
  }
  if (!PyCallable_Check(miss)) {
    PyErr_SetString(PyExc_TypeError, "CompiledFunction: miss must be callable");
    return nullptr;
  }
  CompiledFunction* self = as_compiled(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  self->vectorcall = entry<compiled_call>;
  self->function = Py_NewRef(function);
  self->code = Py_NewRef(PyFunction_GET_CODE(function));
  self->varnames = PyCode_GetVarnames(reinterpret_cast<PyCodeObject*>(self->code));
  self->miss = Py_NewRef(miss);
  self->bound = bound != nullptr ? Py_NewRef(bound) : PyTuple_New(0);
  self->entries = PyTuple_New(0);
  self->plain = PyTuple_New(0);
  self->region = Py_NewRef(Py_None);
  self->dict = PyDict_New();
  Ref owner(reinterpret_cast<PyObject*>(self));
  const bool complete = self->varnames != nullptr && self->bound != nullptr && self->entries != nullptr &&
      self->plain != nullptr;
  return complete && self->dict != nullptr ? owner.release() : nullptr;
}

int compiled_traverse(PyObject* object, visitproc visit, void* arg) {
  CompiledFunction* self = as_compiled(object);
  Py_VISIT(self->function);
  Py_VISIT(self->code);
  Py_VISIT(self->miss);
  Py_VISIT(self->bound);
  Py_VISIT(self->entries);
  Py_VISIT(self->plain);
  Py_VISIT(self->region);
  Py_VISIT(self->state);
  Py_VISIT(self->dict);
  return 0;
}

// `function`, `code`, `bound` and `entries` are never null for a live object; what is in a cycle goes through the rest.
int compiled_clear(PyObject* object) {
  CompiledFunction* self = as_compiled(object);
  self->disabled = 1;
  Py_SETREF(self->miss, Py_NewRef(Py_None));
  PyObject* empty = PyTuple_New(0);  // the shared empty tuple
  Py_XSETREF(self->entries, Py_NewRef(empty));
  Py_XSETREF(self->plain, Py_NewRef(empty));
  Py_XSETREF(self->bound, empty);
  Py_SETREF(self->region, Py_NewRef(Py_None));
  Py_CLEAR(self->state);
  Py_CLEAR(self->dict);
  return 0;
}

void compiled_dealloc(PyObject* object) {
  CompiledFunction* self = as_compiled(object);
  PyObject_GC_UnTrack(object);
  if (self->weak_references != nullptr) PyObject_ClearWeakRefs(object);
  Py_CLEAR(self->function);
  Py_CLEAR(self->code);
  Py_CLEAR(self->varnames);
  Py_CLEAR(self->miss);
  Py_CLEAR(self->bound);
  Py_CLEAR(self->entries);
  Py_CLEAR(self->plain);
  Py_CLEAR(self->region);
  Py_CLEAR(self->state);
  Py_CLEAR(self->dict);
  Py_TYPE(object)->tp_free(object);
}

PyObject* compiled_repr(PyObject* object) {
  const Ref name(PyObject_GetAttrString(object, "__qualname__"));
  return name ? PyUnicode_FromFormat("<compiled function %S at %p>", name.get(), object) : nullptr;
}

PyObject* compiled_get(PyObject* object, PyObject* instance, PyObject*) {
  const bool is_function = PyTuple_GET_SIZE(as_compiled(object)->bound) == 0;
  if (instance == nullptr || instance == Py_None || !is_function) return Py_NewRef(object);
  return PyMethod_New(object, instance);
}

PyObject* compiled_getattro(PyObject* object, PyObject* name) {
  PyObject* found = PyObject_GenericGetAttr(object, name);
  if (found != nullptr || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  PyErr_Clear();
  return PyObject_GetAttr(as_compiled(object)->function, name);
}

bool is_default_attribute(PyObject* name) {
  return PyUnicode_Check(name) &&
      (PyUnicode_CompareWithASCIIString(name, "__defaults__") == 0 ||
       PyUnicode_CompareWithASCIIString(name, "__kwdefaults__") == 0);
}

int compiled_setattro(PyObject* object, PyObject* name, PyObject* value) {
  PyObject* target = is_default_attribute(name) ? as_compiled(object)->function : object;
  return PyObject_GenericSetAttr(target, name, value);
}

PyObject* compiled_add_entry(PyObject* object, PyObject* args) {
  PyObject *table = nullptr, *entry = nullptr;
  if (!PyArg_ParseTuple(args, "O!O:add_entry", &guard_table_type, &table, &entry)) return nullptr;
  if (!PyCallable_Check(entry)) {
    PyErr_SetString(PyExc_TypeError, "add_entry: the entry must be callable");
    return nullptr;
  }
  CompiledFunction* self = as_compiled(object);
  const Ref first(Py_BuildValue("((OO))", table, entry));
  PyObject* entries = first ? PySequence_Concat(first.get(), self->entries) : nullptr;
  if (entries == nullptr) return nullptr;
  Py_SETREF(self->entries, entries);
  Py_RETURN_NONE;
}

PyObject* compiled_clear_entries(PyObject* object, PyObject*) {
  PyObject* empty = PyTuple_New(0);
  if (empty == nullptr) return nullptr;
  Py_SETREF(as_compiled(object)->entries, Py_NewRef(empty));
  Py_SETREF(as_compiled(object)->plain, empty);
  Py_RETURN_NONE;
}

PyObject* compiled_add_plain(PyObject* object, PyObject* table) {
  if (!PyObject_TypeCheck(table, &guard_table_type)) {
    PyErr_SetString(PyExc_TypeError, "add_plain takes a GuardTable");
    return nullptr;
  }
  const Ref last(PyTuple_Pack(1, table));
  PyObject* tables = last ? PySequence_Concat(as_compiled(object)->plain, last.get()) : nullptr;
  if (tables == nullptr) return nullptr;
  Py_SETREF(as_compiled(object)->plain, tables);
  Py_RETURN_NONE;
}

// The qualified name: pickle then stores a reference to it, and copy.copy returns the object itself.
PyObject* compiled_reduce(PyObject* object, PyObject*) {
  return PyObject_GetAttrString(object, "__qualname__");
}

PyObject* compiled_deepcopy(PyObject* object, PyObject* memo) {
  CompiledFunction* self = as_compiled(object);
  if (PyTuple_GET_SIZE(self->bound) == 0) return Py_NewRef(object);
  const Ref rebuild(PyObject_GetAttrString(object, "rebuild"));
  const Ref copy(rebuild ? PyImport_ImportModule("copy") : nullptr);
  const Ref bound(copy ? PyObject_CallMethod(copy.get(), "deepcopy", "OO", self->bound, memo) : nullptr);
  return bound ? PyObject_CallOneArg(rebuild.get(), bound.get()) : nullptr;
}

PyMethodDef compiled_methods[] = {
    {"add_entry", method<compiled_add_entry>(), METH_VARARGS, "add_entry(table, entry): try this entry first."},
    {"add_plain", method<compiled_add_plain>(), METH_O, "add_plain(table): calls it takes, and no entry, go to the function."},
    {"clear", method<compiled_clear_entries>(), METH_NOARGS, "clear(): drop all entries and tables."},
    {"__reduce__", method<compiled_reduce>(), METH_NOARGS, nullptr},
    {"__deepcopy__", method<compiled_deepcopy>(), METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef compiled_members[] = {
    {"function", T_OBJECT, offsetof(CompiledFunction, function), READONLY, "the Python function"},
    {"miss", T_OBJECT, offsetof(CompiledFunction, miss), READONLY, "called with the parameters when no entry fits"},
    {"bound", T_OBJECT, offsetof(CompiledFunction, bound), READONLY, "constant first arguments"},
    {"entries", T_OBJECT, offsetof(CompiledFunction, entries), READONLY, "(table, entry) pairs, latest hit first"},
    {"function_state", T_OBJECT, offsetof(CompiledFunction, state), 0, "what compiles for it; None: nothing yet"},
    {"hits", T_PYSSIZET, offsetof(CompiledFunction, hits), READONLY, "calls that an entry answered"},
    {"misses", T_PYSSIZET, offsetof(CompiledFunction, misses), READONLY, "calls that no entry fitted"},
    {"disabled", T_BOOL, offsetof(CompiledFunction, disabled), 0, "whether calls go to the Python function"},
    {"continues", T_BOOL, offsetof(CompiledFunction, continues), 0, "whether entries call it, as the last thing they do"},
    {nullptr, 0, 0, 0, nullptr},
};

PyObject* get_region(PyObject* object, void*) {
  return Py_NewRef(as_compiled(object)->region);
}

int set_region(PyObject* object, PyObject* value, void*) {
  if (value == nullptr || (value != Py_None && Py_TYPE(value) != &region_type)) {
    PyErr_SetString(PyExc_TypeError, "region must be a Region or None");
    return -1;
  }
  Py_SETREF(as_compiled(object)->region, Py_NewRef(value));
  return 0;
}

// To programs that ask, a compiled function is a function: inspect.isfunction, fx.symbolic_trace, unittest.mock.
PyObject* get_class(PyObject*, void*) { return Py_NewRef(reinterpret_cast<PyObject*>(&PyFunction_Type)); }

PyObject* of_function(PyObject* self, void* name) {
  return PyObject_GetAttrString(reinterpret_cast<CompiledFunction*>(self)->function, static_cast<const char*>(name));
}

#define OF_FUNCTION(name) {name, entry<of_function>, nullptr, "the Python function's", const_cast<char*>(name)}

PyGetSetDef compiled_properties[] = {
    {"__class__", entry<get_class>, nullptr, "types.FunctionType; type() tells the truth", nullptr},
    OF_FUNCTION("__code__"),
    OF_FUNCTION("__closure__"),
    OF_FUNCTION("__defaults__"),
    OF_FUNCTION("__globals__"),
    OF_FUNCTION("__kwdefaults__"),
    {"region", entry<get_region>, entry<set_region>, "what watches calls of the function while it is disabled", nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyTypeObject compiled_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

PyObject* set_detour(PyObject*, PyObject* wanted) {
  const long number = PyLong_AsLong(wanted);
  if (number == -1 && PyErr_Occurred()) return nullptr;
  if (number < kNone || number > kMiss) {
    PyErr_SetString(PyExc_ValueError, "set_detour: 0, 1 or 2");
    return nullptr;
  }
  detour = static_cast<int>(number);
  Py_RETURN_NONE;
}

PyMethodDef dispatch_functions[] = {
    {"set_detour", method<set_detour>(), METH_O, "set_detour(detour): where calls of compiled functions go instead."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

Answer find_entry(PyObject* object, PyObject* const* parameters, Py_ssize_t count, Ref& entry, Ref& fetched) {
  if (Py_TYPE(object) != &compiled_type || is_plain(as_compiled(object)) || detour == kFunction) return Answer::Plain;
  if (detour == kMiss) return Answer::Miss;
  Hit hit = find(as_compiled(object), parameters, count, false);
  entry = std::move(hit.entry);
  fetched = std::move(hit.fetched);
  if (entry) return Answer::Entry;
  return runs_plainly(as_compiled(object), parameters, count) ? Answer::Plain : Answer::Miss;
}

int add_dispatch(PyObject* module) {
  compiled_type.tp_name = "torchglass._native.CompiledFunction";
  compiled_type.tp_basicsize = sizeof(CompiledFunction);
  compiled_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL;
  compiled_type.tp_vectorcall_offset = offsetof(CompiledFunction, vectorcall);
  compiled_type.tp_dictoffset = offsetof(CompiledFunction, dict);
  compiled_type.tp_weaklistoffset = offsetof(CompiledFunction, weak_references);
  compiled_type.tp_call = PyVectorcall_Call;
  compiled_type.tp_new = entry<compiled_new>;
  compiled_type.tp_dealloc = quiet_entry<compiled_dealloc>;
  compiled_type.tp_traverse = quiet_entry<compiled_traverse>;
  compiled_type.tp_clear = entry<compiled_clear>;
  compiled_type.tp_repr = entry<compiled_repr>;
  compiled_type.tp_descr_get = entry<compiled_get>;
  compiled_type.tp_getattro = entry<compiled_getattro>;
  compiled_type.tp_setattro = entry<compiled_setattro>;
  compiled_type.tp_methods = compiled_methods;
  compiled_type.tp_members = compiled_members;
  compiled_type.tp_getset = compiled_properties;
  if (PyType_Ready(&compiled_type) < 0 || add_tail_calls() < 0) return -1;
  if (PyModule_AddFunctions(module, dispatch_functions) < 0) return -1;
  return PyModule_AddObjectRef(module, "CompiledFunction", reinterpret_cast<PyObject*>(&compiled_type));
}

}  // namespace torchglass
