// Which of a graph's variants a call runs: the one for all sizes, or one compiled for the sizes that it has.
//
//   SizeDispatch(graph, places: tuple[(int, int), ...], after: int, notice: callable)
//       graph(*inputs), the sizes of a call being those of its inputs: `places` says of each which input and which of
//       its dimensions. Sizes that `after` calls have had are told: notice(this, sizes: tuple), once if it takes
//       them, which it says by something true. Counted at a time are `most_counted` tuples of sizes, the rarest of
//       which gives way to a new one.
//   add(sizes: tuple, graph): from now on calls of these sizes run that graph.
//   end(): nothing is counted any more, and `notice` is let go.
//   taken: how many sizes `notice` has taken.
//
// Inputs that do not tell their sizes, such as those of a tracer, leave the choice to the graph for all of them.
#include "native.h"
#include "tensor_facts.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace torchglass {
namespace {

using CallSizes = std::vector<int64_t>;
constexpr size_t most_counted = 16;

struct SizePlace {
  Py_ssize_t input;
  int64_t dim;
};

struct SizeVariant {
  CallSizes sizes;
  Ref graph;
};

struct SizeCount {
  CallSizes sizes;
  uint64_t calls;
};

struct SizeDispatch {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject* graph;
  PyObject* notice;  // null when nothing is counted any more
  uint64_t after;
  std::vector<SizePlace> places;
  std::vector<SizeVariant> variants;
  std::vector<SizeCount> counts;
  std::vector<CallSizes> taken;
};

SizeDispatch* as_dispatch(PyObject* object) {
  return reinterpret_cast<SizeDispatch*>(object);
}

// Into `sizes`, which has one for each place; false where an input does not tell.
bool read_call_sizes(const std::vector<SizePlace>& places, PyObject* const* args, Py_ssize_t count, CallSizes& sizes) {
  for (size_t i = 0; i < places.size(); ++i) {
    const SizePlace place = places[i];
    if (place.input >= count || !is_tensor(args[place.input])) return false;
    const at::TensorImpl* const tensor = THPVariable_Unpack(args[place.input]).unsafeGetTensorImpl();
    if (tensor->has_symbolic_sizes_strides() || place.dim >= tensor->dim()) return false;
    sizes[i] = tensor->size(place.dim);
  }
  return true;
}

Ref tuple_of(const CallSizes& sizes) {
  Ref tuple(PyTuple_New(static_cast<Py_ssize_t>(sizes.size())));
  for (size_t i = 0; tuple && i < sizes.size(); ++i) {
    PyObject* const number = PyLong_FromLongLong(sizes[i]);
    if (number == nullptr) return Ref();
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), number);
  }
  return tuple;
}

// Counts a call. Whether its sizes have just been had often enough.
bool count_call(SizeDispatch* self, const CallSizes& sizes) {
  auto& counts = self->counts;
  auto found = std::find_if(counts.begin(), counts.end(), [&](const SizeCount& one) { return one.sizes == sizes; });
  if (found == counts.end()) {
    if (counts.size() < most_counted) {
      counts.push_back({sizes, 0});
      found = counts.end() - 1;
    } else {
      found = std::min_element(
          counts.begin(), counts.end(), [](const SizeCount& a, const SizeCount& b) { return a.calls < b.calls; });
      *found = {sizes, 0};
    }
  }
  return ++found->calls == self->after;
}

// Sizes that were not taken are told again when as many further calls have had them.
void forget_count(SizeDispatch* self, const CallSizes& sizes) {
  for (SizeCount& one : self->counts) {
    if (one.sizes == sizes) one.calls = 0;
  }
}

// False with an exception set where `notice` raised.
bool note_call(SizeDispatch* self, const CallSizes& sizes) {
  if (std::find(self->taken.begin(), self->taken.end(), sizes) != self->taken.end()) return true;
  if (!count_call(self, sizes)) return true;
  const Ref notice = Ref::borrow(self->notice);  // before anything may run that ends the counting
  const Ref told = tuple_of(sizes);
  if (!told) return false;
  PyObject* arguments[] = {reinterpret_cast<PyObject*>(self), told.get()};
  const Ref taken(PyObject_Vectorcall(notice.get(), arguments, 2, nullptr));
  const int truth = taken ? PyObject_IsTrue(taken.get()) : -1;
  if (truth == 0) forget_count(self, sizes);
  if (truth > 0) self->taken.push_back(sizes);
  return truth >= 0;
}

PyObject* dispatch_call(PyObject* object, PyObject* const* args, size_t flags, PyObject* names) {
  SizeDispatch* const self = as_dispatch(object);
  const Ref held = Ref::borrow(object);
  Ref graph = Ref::borrow(self->graph);
  if (self->notice != nullptr || !self->variants.empty()) {
    CallSizes sizes(self->places.size());
    if (read_call_sizes(self->places, args, PyVectorcall_NARGS(flags), sizes)) {
      const auto found = std::find_if(
          self->variants.begin(), self->variants.end(), [&](const SizeVariant& one) { return one.sizes == sizes; });
      if (found != self->variants.end()) {
        graph = found->graph;
      } else if (self->notice != nullptr && !note_call(self, sizes)) {
        return nullptr;
      }
    }
  }
  return PyObject_Vectorcall(graph.get(), args, flags, names);
}

// ------------------------------------------------------------------------------------------------ the Python type

bool parse_places(PyObject* rows, std::vector<SizePlace>& places) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(rows); ++i) {
    SizePlace place;
    long long dim;
    PyObject* const row = PyTuple_GET_ITEM(rows, i);
    if (!expect_tuple(row, "a place") || !PyArg_ParseTuple(row, "nL", &place.input, &dim)) return false;
    if (place.input < 0 || dim < 0) {
      PyErr_SetString(PyExc_ValueError, "places: an input and one of its dimensions, both counted from 0");
      return false;
    }
    place.dim = dim;
    places.push_back(place);
  }
  return true;
}

PyObject* dispatch_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"graph", "places", "after", "notice", nullptr};
  PyObject *graph, *rows, *notice;
  unsigned long long after;
  if (!PyArg_ParseTupleAndKeywords(
          args, kwargs, "OO!KO:SizeDispatch", const_cast<char**>(names), &graph, &PyTuple_Type, &rows, &after,
          &notice)) {
    return nullptr;
  }
  std::vector<SizePlace> places;
  if (!parse_places(rows, places)) return nullptr;
  SizeDispatch* const self = as_dispatch(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  self->vectorcall = entry<dispatch_call>;
  self->graph = Py_NewRef(graph);
  self->notice = Py_NewRef(notice);
  self->after = after;
  new (&self->places) std::vector<SizePlace>(std::move(places));
  new (&self->variants) std::vector<SizeVariant>();
  new (&self->counts) std::vector<SizeCount>();
  new (&self->taken) std::vector<CallSizes>();
  return reinterpret_cast<PyObject*>(self);
}

PyObject* dispatch_add(PyObject* object, PyObject* args) {
  SizeDispatch* const self = as_dispatch(object);
  PyObject *tuple, *graph;
  if (!PyArg_ParseTuple(args, "O!O:add", &PyTuple_Type, &tuple, &graph)) return nullptr;
  if (static_cast<size_t>(PyTuple_GET_SIZE(tuple)) != self->places.size()) {
    PyErr_SetString(PyExc_ValueError, "sizes: one for each place");
    return nullptr;
  }
  CallSizes sizes;
  for (size_t i = 0; i < self->places.size(); ++i) {
    sizes.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, static_cast<Py_ssize_t>(i))));
    if (sizes.back() == -1 && PyErr_Occurred()) return nullptr;
  }
  self->variants.push_back({std::move(sizes), Ref::borrow(graph)});
  Py_RETURN_NONE;
}

PyObject* dispatch_end(PyObject* object, PyObject*) {
  as_dispatch(object)->counts.clear();
  Py_CLEAR(as_dispatch(object)->notice);
  Py_RETURN_NONE;
}

PyObject* dispatch_taken(PyObject* object, void*) {
  return PyLong_FromSize_t(as_dispatch(object)->taken.size());
}

int dispatch_traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(as_dispatch(object)->graph);
  Py_VISIT(as_dispatch(object)->notice);
  for (const SizeVariant& variant : as_dispatch(object)->variants) Py_VISIT(variant.graph.get());
  return 0;
}

int dispatch_clear(PyObject* object) {
  SizeDispatch* const self = as_dispatch(object);
  Py_CLEAR(self->notice);
  const std::vector<SizeVariant> variants = std::exchange(self->variants, {});
  return 0;  // the graph stays: who holds a dispatch that is being cleared may still call it
}

void dispatch_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  SizeDispatch* const self = as_dispatch(object);
  dispatch_clear(object);
  Py_CLEAR(self->graph);
  self->places.~vector();
  self->variants.~vector();
  self->counts.~vector();
  self->taken.~vector();
  Py_TYPE(object)->tp_free(object);
}

PyMethodDef dispatch_methods[] = {
    {"add", method<dispatch_add>(), METH_VARARGS, "add(sizes, graph): calls of these sizes run that graph."},
    {"end", method<dispatch_end>(), METH_NOARGS, "Count nothing any more, and let `notice` go."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef dispatch_fields[] = {
    {"taken", entry<dispatch_taken>, nullptr, "How many sizes `notice` has taken.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyTypeObject dispatch_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

}  // namespace

int add_size_dispatch(PyObject* module) {
  dispatch_type.tp_name = "torchglass._native.SizeDispatch";
  dispatch_type.tp_doc = "Which of a graph's variants a call runs: size_dispatch.cpp.";
  dispatch_type.tp_basicsize = sizeof(SizeDispatch);
  dispatch_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL;
  dispatch_type.tp_vectorcall_offset = offsetof(SizeDispatch, vectorcall);
  dispatch_type.tp_call = PyVectorcall_Call;
  dispatch_type.tp_new = entry<dispatch_new>;
  dispatch_type.tp_dealloc = quiet_entry<dispatch_dealloc>;
  dispatch_type.tp_traverse = quiet_entry<dispatch_traverse>;
  dispatch_type.tp_clear = quiet_entry<dispatch_clear>;
  dispatch_type.tp_methods = dispatch_methods;
  dispatch_type.tp_getset = dispatch_fields;
  if (PyType_Ready(&dispatch_type) < 0) return -1;
  return PyModule_AddObjectRef(module, "SizeDispatch", reinterpret_cast<PyObject*>(&dispatch_type));
}

}  // namespace torchglass
