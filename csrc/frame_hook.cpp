// The frame evaluation hook: functions called from a region are compiled as functions of their own.
//
//   Region(compile)
//       A region of plain Python. `with region:` watches the current thread: each Python function called inside is
//       looked up here, and its frame is answered by an entry of its compiled function where there is one. For a
//       function or a call without one, compile(function, parameters, compiled or None) returns (entry, fetched), or
//       None to run the frame as usual. It may use the following:
//   region.add(function, compiled)    calls of this function are calls of `compiled` from now on
//   region.skip(code)                 frames of this code run as usual from now on
//   region.clear()
//       A region lives until it is left, by the thread that entered it.
//   watching() -> bool                whether the current thread is inside a region
//
// Entries, graphs, `compile` and all that they call run unwatched, and so does a function marked with tg.disable with
// all that it calls. The hook is installed while some thread watches, and passes on the frames of the others.
//
// What CPython leaves to an evaluator that does not run the frame: on 3.11 nothing, the caller clears and pops it; from
// 3.12 on clearing and popping is ours. Parameters are bound and in the frame's first slots, cells are not made yet and
// free variables not copied, so calling an entry with these slots is all there is to do. A frame that throws, is
// traced, has started, or belongs to a generator, class body or module runs as usual. Ended it is on every path that does
// not run it: answered by a result, an exception that was raised, or one that our own code threw. While the hook is
// installed each call of a Python function takes C stack, in all threads: near its end calls raise RecursionError.
//
// A function without closure is known by its code and globals, so that inner functions made anew on every call find
// their entries. One with a closure is known by itself, as guards on its cells are; when it dies its entries die. After
// `most_closures` of one code it is left alone: such functions are made faster than compiling them pays.
#include "frame_hook.h"
#include "stack.h"
#include "tail_calls.h"

#define Py_BUILD_CORE 1
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <vector>

namespace torchglass {

int watching_threads = 0;

struct Variant {
  PyObject* globals;    // compared, never followed
  PyObject* function;   // likewise; null for one without closure
  Ref alive;            // a weak reference to `function`, whose callback removes this
  Ref compiled;
};

struct Record {
  Ref code;
  bool plain = false;
  int closures = 0;  // how many functions with a closure there were
  std::vector<Variant> variants;
};

static constexpr int most_closures = 8;
static constexpr size_t most_records = 4096;  // then all is forgotten: programs that keep making code stay flat

struct Region {
  PyObject_HEAD
  PyObject* compile;
  std::unordered_map<PyObject*, Record>* records;  // by code object

  Record* find(PyObject* code) const {
    const auto found = records->find(code);
    return found != records->end() ? &found->second : nullptr;
  }

  Record& at(PyObject* code) {
    if (records->size() >= most_records && find(code) == nullptr) forget();
    Record& record = (*records)[code];
    if (!record.code) record.code = Ref::borrow(code);
    return record;
  }

  // Emptied first, freed then: freeing may run Python code that comes back here.
  void forget() {
    const auto old = std::exchange(*records, {});
  }
};

namespace {

// A region that was entered and not left yet, and what was watched before: both owned.
struct Entered {
  Region* region;
  Region* before;
};

thread_local Region* watched = nullptr;  // owned
thread_local std::vector<Entered> entered;
thread_local _PyInterpreterFrame* passing = nullptr;
_PyFrameEvalFunction previous = nullptr;  // what was installed before us: another tool's hook, or the default

Region* as_region(PyObject* object) {
  return reinterpret_cast<Region*>(object);
}

Region* own(Region* region) {
  Py_XINCREF(reinterpret_cast<PyObject*>(region));
  return region;
}

// ------------------------------------------------------------------------------------------------ frames

#if PY_VERSION_HEX < 0x030C0000
PyObject* function_of(_PyInterpreterFrame* frame) { return reinterpret_cast<PyObject*>(frame->f_func); }
PyObject* code_object_of(_PyInterpreterFrame* frame) { return reinterpret_cast<PyObject*>(frame->f_code); }
#elif PY_VERSION_HEX < 0x030D0000
PyObject* function_of(_PyInterpreterFrame* frame) { return frame->f_funcobj; }
PyObject* code_object_of(_PyInterpreterFrame* frame) { return reinterpret_cast<PyObject*>(frame->f_code); }
#else
PyObject* function_of(_PyInterpreterFrame* frame) { return frame->f_funcobj; }
PyObject* code_object_of(_PyInterpreterFrame* frame) { return frame->f_executable; }
#endif

bool has_not_started(_PyInterpreterFrame* frame, PyCodeObject* code) {
#if PY_VERSION_HEX < 0x030D0000
  return frame->prev_instr == _PyCode_CODE(code) - 1;
#else
  return frame->instr_ptr == _PyCode_CODE(code);
#endif
}

// Whether it may be ended here: a generator's is its own.
bool is_start(_PyInterpreterFrame* frame, PyObject* code) {
  return frame->owner == FRAME_OWNED_BY_THREAD && PyCode_Check(code) &&
      has_not_started(frame, reinterpret_cast<PyCodeObject*>(code));
}

// Whether this is the start of a plain function's call.
bool is_call(_PyInterpreterFrame* frame, PyObject* object) {
  if (!is_start(frame, object)) return false;
  auto* code = reinterpret_cast<PyCodeObject*>(object);
  constexpr int function = CO_OPTIMIZED | CO_NEWLOCALS;
  constexpr int resumed = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE;
  if ((code->co_flags & (function | resumed)) != function) return false;
  if (frame->frame_obj != nullptr || frame->f_locals != nullptr) return false;
  PyObject* callee = function_of(frame);
  return callee != nullptr && PyFunction_Check(callee) && PyFunction_GET_CODE(callee) == object;
}

Py_ssize_t parameter_count(PyCodeObject* code) {
  return code->co_argcount + code->co_kwonlyargcount + ((code->co_flags & CO_VARARGS) != 0) +
      ((code->co_flags & CO_VARKEYWORDS) != 0);
}

// Ends a frame that was answered without running it.
#if PY_VERSION_HEX < 0x030C0000
void end_frame(PyThreadState*, _PyInterpreterFrame*) {}  // the caller does it
#elif PY_VERSION_HEX < 0x030D0000
void pop_frame(PyThreadState* thread, _PyInterpreterFrame* frame) {
  PyObject** const base = reinterpret_cast<PyObject**>(frame);
  _PyStackChunk* const chunk = thread->datastack_chunk;
  if (base != &chunk->data[0]) {
    thread->datastack_top = base;
    return;
  }
  _PyStackChunk* const below = chunk->previous;
  thread->datastack_top = &below->data[below->top];
  thread->datastack_chunk = below;
  PyObjectArenaAllocator arena;  // what stack chunks come from
  PyObject_GetArenaAllocator(&arena);
  arena.free(arena.ctx, chunk, chunk->size);
  thread->datastack_limit = reinterpret_cast<PyObject**>(reinterpret_cast<char*>(below) + below->size);
}

// The frame is not linked, so nobody sees it while the destructors of its locals run.
void end_frame(PyThreadState* thread, _PyInterpreterFrame* frame) {
  for (int i = 0; i < frame->stacktop; ++i) Py_XDECREF(frame->localsplus[i]);
  Py_XDECREF(frame->f_locals);
  Py_DECREF(frame->f_funcobj);
  Py_DECREF(frame->f_code);
  pop_frame(thread, frame);
}
#else
extern "C" void _PyEval_FrameClearAndPop(PyThreadState*, _PyInterpreterFrame*);

void end_frame(PyThreadState* thread, _PyInterpreterFrame* frame) {
  _PyEval_FrameClearAndPop(thread, frame);
}
#endif

// ------------------------------------------------------------------------------------------------ answering a call

// The compiled function of a function, null if there is none yet.
Ref find_compiled(const Record* record, PyObject* function) {
  if (record == nullptr) return Ref();
  const bool has_closure = PyFunction_GET_CLOSURE(function) != nullptr;
  PyObject* const identity = has_closure ? function : nullptr;
  for (const Variant& variant : record->variants) {
    if (variant.function == identity && variant.globals == PyFunction_GET_GLOBALS(function)) return variant.compiled;
  }
  return Ref();
}

Ref as_tuple(PyObject* const* items, Py_ssize_t count) {
  Ref tuple(PyTuple_New(count));
  for (Py_ssize_t i = 0; tuple && i < count; ++i) PyTuple_SET_ITEM(tuple.get(), i, Py_NewRef(items[i]));
  return tuple;
}

// An exception while compiling is shown, and the code left alone. False for those that must pass: KeyboardInterrupt.
bool say(Region* region, PyObject* function, PyObject* code) {
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return false;
  PyErr_WriteUnraisable(function);
  region->at(code).plain = true;
  return true;
}

// Asks `compile` for an entry. False with an exception set if that has to pass on.
bool compile_entry(
    Region* region, PyObject* function, PyObject* code, PyObject* const* parameters, Py_ssize_t count,
    const Ref& compiled, Ref& entry, Ref& fetched) {
  const Ref compile = Ref::borrow(region->compile);
  const Ref arguments = as_tuple(parameters, count);
  PyObject* const known = compiled ? compiled.get() : Py_None;
  const Ref found(
      arguments ? PyObject_CallFunctionObjArgs(compile.get(), function, arguments.get(), known, nullptr) : nullptr);
  if (!found) return say(region, function, code);
  if (found.get() == Py_None) return true;
  PyObject *first = nullptr, *second = nullptr;
  if (!expect_tuple(found.get(), "Region: what compile returns, if it is not None,") ||
      !PyArg_ParseTuple(found.get(), "OO:Region.compile", &first, &second)) {
    return say(region, function, code);
  }
  entry = Ref::borrow(first);
  fetched = Ref::borrow(second);
  return true;
}

// Whether the call was answered; then `result` is what the frame returns, null with an exception set.
bool answer(Region* region, _PyInterpreterFrame* frame, PyObject* function, PyObject* code, PyObject*& result) {
  const Watching nothing(nullptr);
  const Py_ssize_t count = parameter_count(reinterpret_cast<PyCodeObject*>(code));
  PyObject* const* const parameters = frame->localsplus;
  Ref entry, fetched;
  const Ref compiled = find_compiled(region->find(code), function);
  const Answer found = compiled ? find_entry(compiled.get(), parameters, count, entry, fetched) : Answer::Miss;
  if (found == Answer::Plain) return false;
  if (found == Answer::Miss) {
    if (!compile_entry(region, function, code, parameters, count, compiled, entry, fetched)) {
      result = nullptr;
      return true;
    }
    if (!entry) return false;
  }
  std::vector<PyObject*> slots(count + 2);
  std::copy_n(parameters, count, slots.begin() + 1);
  slots[count + 1] = fetched.get();
  const size_t given = (count + 1) | PY_VECTORCALL_ARGUMENTS_OFFSET;
  TailCalls calls;
  result = calls.finish(PyObject_Vectorcall(entry.get(), slots.data() + 1, given, nullptr));
  return true;
}

// Marked by tg.disable (marks/markers.py) or torch.compiler.disable.
bool is_disabled(PyObject* function) {
  static PyObject* const names[] = {
      PyUnicode_InternFromString("_torchglass_disabled"), PyUnicode_InternFromString("_torchdynamo_disable")};
  PyObject* const attributes = reinterpret_cast<PyFunctionObject*>(function)->func_dict;
  if (attributes == nullptr) return false;
  for (PyObject* const name : names) {
    if (PyDict_GetItemWithError(attributes, name) == Py_True) return true;
  }
  return false;
}

// ------------------------------------------------------------------------------------------------ the hook

// Runs the frame. `again`: a hook that was installed over ours and under it came back with the same frame.
PyObject* run(PyThreadState* thread, _PyInterpreterFrame* frame, int throwing, bool again) {
  const _PyFrameEvalFunction next = previous;
  if (again || next == nullptr || next == _PyEval_EvalFrameDefault) {
    return _PyEval_EvalFrameDefault(thread, frame, throwing);
  }
  _PyInterpreterFrame* const before = std::exchange(passing, frame);
  PyObject* const result = next(thread, frame, throwing);
  passing = before;
  return result;
}

PyObject* evaluate(PyThreadState* thread, _PyInterpreterFrame* frame, int throwing) {
  Region* const region = watched;
  const bool again = frame == passing;
  if (!has_stack() && !throwing && !again && is_start(frame, code_object_of(frame))) {
    PyErr_SetString(PyExc_RecursionError, OutOfStack().what());
    end_frame(thread, frame);
    return nullptr;
  }
  if (region == nullptr || throwing || again || thread->tracing != 0 || thread->c_tracefunc != nullptr) {
    return run(thread, frame, throwing, again);
  }
  PyObject* const code = code_object_of(frame);
  const Record* const record = region->find(code);
  if (!is_call(frame, code)) return run(thread, frame, throwing, again);
  PyObject* const function = function_of(frame);
  if (is_disabled(function)) {
    const Watching nothing(nullptr);
    return run(thread, frame, throwing, again);
  }
  if (record != nullptr && record->plain) return run(thread, frame, throwing, again);
  const Ref alive = Ref::borrow(reinterpret_cast<PyObject*>(region));
  bool answered = true;  // also by an exception, raised or thrown: the frame ends as for any result
  PyObject* const result = guarded([&] {
    PyObject* given = nullptr;
    answered = answer(region, frame, function, code, given);
    return given;
  });
  if (!answered) return run(thread, frame, throwing, again);
  end_frame(thread, frame);
  return result;
}

void install() {
  PyInterpreterState* const interpreter = PyInterpreterState_Get();
  const _PyFrameEvalFunction now = _PyInterpreterState_GetEvalFrameFunc(interpreter);
  if (now == evaluate) return;
  previous = now;
  _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluate);
}

void uninstall() {
  PyInterpreterState* const interpreter = PyInterpreterState_Get();
  if (_PyInterpreterState_GetEvalFrameFunc(interpreter) != evaluate) return;  // another tool's is over ours
  _PyInterpreterState_SetEvalFrameFunc(interpreter, previous);
}

// Takes the reference over.
void watch(Region* region) {
  const int change = (region != nullptr) - (watched != nullptr);
  const Ref old(reinterpret_cast<PyObject*>(std::exchange(watched, region)));
  watching_threads += change;
  if (change > 0 && watching_threads == 1) install();
  if (change < 0 && watching_threads == 0) uninstall();
}

}  // namespace

Watching::Watching(Region* region) : before_(own(watched)) {
  watch(own(region));
}

Watching::~Watching() {
  watch(before_);
}

// ------------------------------------------------------------------------------------------------ the Python type

namespace {

PyObject* region_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject* compile = nullptr;
  if (!PyArg_ParseTuple(args, "O:Region", &compile)) return nullptr;
  if (!PyCallable_Check(compile)) {
    PyErr_SetString(PyExc_TypeError, "Region: compile must be callable");
    return nullptr;
  }
  Ref made(type->tp_alloc(type, 0));
  if (!made) return nullptr;
  Region* self = as_region(made.get());
  self->compile = Py_NewRef(compile);
  self->records = new std::unordered_map<PyObject*, Record>();
  return made.release();
}

int region_traverse(PyObject* object, visitproc visit, void* arg) {
  Region* self = as_region(object);
  Py_VISIT(self->compile);
  if (self->records == nullptr) return 0;
  for (const auto& [code, record] : *self->records) {
    Py_VISIT(code);
    for (const Variant& variant : record.variants) {
      Py_VISIT(variant.alive.get());
      Py_VISIT(variant.compiled.get());
    }
  }
  return 0;
}

int region_clear_references(PyObject* object) {
  Region* self = as_region(object);
  if (self->records != nullptr) self->forget();
  Py_XSETREF(self->compile, Py_NewRef(Py_None));
  return 0;
}

void region_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  Region* self = as_region(object);
  if (self->records != nullptr) self->forget();
  delete self->records;
  Py_CLEAR(self->compile);
  Py_TYPE(object)->tp_free(object);
}

PyObject* region_enter(PyObject* object, PyObject*) {
  Region* const region = as_region(object);
  entered.push_back({region, watched});
  own(entered.back().region);
  own(entered.back().before);
  watch(own(region));
  return Py_NewRef(object);
}

// Left out of order, as by coroutines that take turns, it is no longer what others come back to.
PyObject* region_exit(PyObject* object, PyObject* const*, Py_ssize_t) {
  const auto is_it = [object](const Entered& one) { return one.region == as_region(object); };
  const auto found = std::find_if(entered.rbegin(), entered.rend(), is_it);
  if (found == entered.rend()) {
    PyErr_SetString(PyExc_RuntimeError, "Region.__exit__ without __enter__ on this thread");
    return nullptr;
  }
  const Ref left(reinterpret_cast<PyObject*>(found->region));
  Region* const before = found->before;
  const auto above = entered.erase(std::next(found).base());
  if (above == entered.end()) {
    watch(before);
  } else {
    const Ref old(reinterpret_cast<PyObject*>(std::exchange(above->before, before)));
  }
  Py_RETURN_NONE;
}

// The callback of a variant's weak reference: `region` is the region, `reference` the dead reference.
PyObject* on_region_death(PyObject* region, PyObject* reference) {
  for (auto& [code, record] : *as_region(region)->records) {
    auto& all = record.variants;
    const auto found = std::find_if(all.begin(), all.end(), [&](const Variant& v) { return v.alive.get() == reference; });
    if (found == all.end()) continue;
    const Variant gone = std::move(*found);  // freed after it has left the list
    all.erase(found);
    break;
  }
  Py_RETURN_NONE;
}

PyMethodDef on_region_death_method = {"on_death", method<on_region_death>(), METH_O, nullptr};

PyObject* region_add(PyObject* object, PyObject* args) {
  PyObject *function = nullptr, *compiled = nullptr;
  if (!PyArg_ParseTuple(args, "O!O:add", &PyFunction_Type, &function, &compiled)) return nullptr;
  const bool has_closure = PyFunction_GET_CLOSURE(function) != nullptr;
  Ref alive;
  if (has_closure) {
    const Ref callback(PyCFunction_New(&on_region_death_method, object));
    alive = Ref(callback ? PyWeakref_NewRef(function, callback.get()) : nullptr);
    if (!alive) return nullptr;
  }
  Record& record = as_region(object)->at(PyFunction_GET_CODE(function));
  if (has_closure && ++record.closures > most_closures) {
    record.plain = true;
    const auto gone = std::exchange(record.variants, {});
    Py_RETURN_NONE;
  }
  record.variants.push_back(
      {PyFunction_GET_GLOBALS(function), has_closure ? function : nullptr, std::move(alive), Ref::borrow(compiled)});
  Py_RETURN_NONE;
}

PyObject* region_skip(PyObject* object, PyObject* code) {
  if (!PyCode_Check(code)) {
    PyErr_SetString(PyExc_TypeError, "skip takes a code object");
    return nullptr;
  }
  Record& record = as_region(object)->at(code);
  record.plain = true;
  const auto gone = std::exchange(record.variants, {});
  Py_RETURN_NONE;
}

PyObject* region_clear(PyObject* object, PyObject*) {
  as_region(object)->forget();
  Py_RETURN_NONE;
}

PyObject* watching(PyObject*, PyObject*) {
  return PyBool_FromLong(watched != nullptr);
}

PyMethodDef region_methods[] = {
    {"__enter__", method<region_enter>(), METH_NOARGS, nullptr},
    {"__exit__", method<region_exit>(), METH_FASTCALL, nullptr},
    {"add", method<region_add>(), METH_VARARGS, "add(function, compiled): its calls are calls of `compiled` from now on."},
    {"skip", method<region_skip>(), METH_O, "skip(code): frames of this code run as usual from now on."},
    {"clear", method<region_clear>(), METH_NOARGS, "clear(): forget all functions."},
    {nullptr, nullptr, 0, nullptr},
};

// In a forked child there is one thread: this one.
PyObject* forget_other_threads(PyObject*, PyObject*) {
  watching_threads = watched != nullptr;
  if (watching_threads == 0) uninstall();
  Py_RETURN_NONE;
}

PyMethodDef frame_hook_functions[] = {
    {"forget_other_threads", method<forget_other_threads>(), METH_NOARGS,
     "forget_other_threads(): in a forked child, nobody else is inside a region."},
    {"watching", method<watching>(), METH_NOARGS, "watching(): whether the current thread is inside a region."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyTypeObject region_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

int add_frame_hook(PyObject* module) {
  region_type.tp_name = "torchglass._native.Region";
  region_type.tp_doc = "Region(compile): plain Python whose callees are compiled; see csrc/frame_hook.cpp.";
  region_type.tp_basicsize = sizeof(Region);
  region_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC;
  region_type.tp_new = entry<region_new>;
  region_type.tp_dealloc = quiet_entry<region_dealloc>;
  region_type.tp_traverse = quiet_entry<region_traverse>;
  region_type.tp_clear = entry<region_clear_references>;
  region_type.tp_methods = region_methods;
  if (PyType_Ready(&region_type) < 0 || PyModule_AddFunctions(module, frame_hook_functions) < 0) return -1;
  return PyModule_AddObjectRef(module, "Region", reinterpret_cast<PyObject*>(&region_type));
}

}  // namespace torchglass
