// What the files of torchglass._native share: a reference holder, the way in from Python, the types' entry points.
//
// What there is once for the process (frame hook, counts, memory) is guarded by the GIL or by locks of its own, and
// belongs to the main interpreter: module.cpp refuses others.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#ifdef Py_GIL_DISABLED
#error "torchglass needs a Python with the GIL: what it remembers between calls has no locks of its own"
#endif

#include <exception>
#include <type_traits>
#include <utility>

#ifdef __GLIBCXX__
#include <cxxabi.h>
#endif

namespace torchglass {

// An owned reference, released at the end of its scope.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* owned) : object_(owned) {}
  Ref(Ref&& other) noexcept : object_(other.release()) {}
  Ref(const Ref& other) : object_(Py_XNewRef(other.object_)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }
  static Ref borrow(PyObject* object) { return Ref(Py_XNewRef(object)); }

  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// A type of a module that may be loaded later or never; null before: who has an object of it has loaded it.
class LoadedType {
 public:
  constexpr LoadedType(const char* module, const char* name) : module_(module), name_(name) {}

  PyTypeObject* get() {
    if (type_ == nullptr) look();
    return type_;
  }

 private:
  void look() {
    const Ref name(PyUnicode_FromString(module_));
    const Ref module(name ? PyImport_GetModule(name.get()) : nullptr);
    Ref found(module ? PyObject_GetAttrString(module.get(), name_) : nullptr);
    if (found && PyType_Check(found.get())) type_ = reinterpret_cast<PyTypeObject*>(found.release());
    PyErr_Clear();
  }

  const char *module_, *name_;
  PyTypeObject* type_ = nullptr;  // kept for good
};

// ------------------------------------------------------------------------------------------------ the way in

// The C++ exception that is being handled, as Python's: errors.cpp says which. Needs the GIL.
void set_python_error() noexcept;

// The same where nothing may be raised: it is shown and forgotten.
void report_unraisable() noexcept;

// Whether it is a tuple, as PyArg_ParseTuple needs it; else TypeError that says what should be one.
bool expect_tuple(PyObject* object, const char* what);

// Python ends threads that outlive it, where they ask for the GIL, by pthread_exit: that unwinds the stack and must get
// through.
#ifdef __GLIBCXX__
#define TORCHGLASS_LET_THREADS_END catch (abi::__forced_unwind&) { throw; }
#else
#define TORCHGLASS_LET_THREADS_END
#endif

// body(), for CPython, whose frames no C++ exception may cross: what is thrown is raised, and null or -1 returned.
template <class Body>
auto guarded(Body&& body) {
  using Result = decltype(body());
  try {
    return body();
  } TORCHGLASS_LET_THREADS_END catch (...) {
    set_python_error();
  }
  if constexpr (std::is_pointer_v<Result>) {
    return Result(nullptr);
  } else {
    return Result(-1);
  }
}

// The same for what must not raise (destructors, deleters, watchers, visitors): nothing or 0 is returned.
template <class Body>
auto unraising(Body&& body) {
  using Result = decltype(body());
  try {
    return body();
  } TORCHGLASS_LET_THREADS_END catch (...) {
    report_unraisable();
  }
  return Result();
}

// body() without the GIL. By no destructor: taking the GIL again may be the end of the thread.
template <class Body>
void without_gil(Body&& body) {
  std::exception_ptr thrown;
  Py_BEGIN_ALLOW_THREADS
  try {
    body();
  } TORCHGLASS_LET_THREADS_END catch (...) {
    thrown = std::current_exception();
  }
  Py_END_ALLOW_THREADS
  if (thrown) std::rethrow_exception(thrown);
}

template <auto function, class = decltype(function)>
struct Entry;

template <auto function, class Result, class... Arguments>
struct Entry<function, Result (*)(Arguments...)> {
  static Result raising(Arguments... arguments) {
    return guarded([&] { return function(arguments...); });
  }
  static Result quiet(Arguments... arguments) {
    return unraising([&] { return function(arguments...); });
  }
};

// A function as every slot, getter, setter and callback gets it: `type.tp_new = entry<table_new>`.
template <auto function>
constexpr auto entry = &Entry<function>::raising;

template <auto function>
constexpr auto quiet_entry = &Entry<function>::quiet;

// The same for rows of PyMethodDef, whatever the function is passed by its flags: `{"check", method<check>(), METH_O}`.
template <auto function>
PyCFunction method() {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(entry<function>));
}

// ------------------------------------------------------------------------------------------------ parts of the module

// Each adds its types and functions to the module; -1 with an exception set on failure.
int add_launch(PyObject* module);
int add_cuda_launch(PyObject* module);
int add_cuda_replay(PyObject* module);
int add_cuda_draws(PyObject* module);
int add_philox(PyObject* module);
int add_write_back(PyObject* module);
int add_attention(PyObject* module);
int add_dispatch(PyObject* module);
int add_size_dispatch(PyObject* module);
int add_module_call(PyObject* module);
int add_thread_state(PyObject* module);
int add_answering(PyObject* module);

}  // namespace torchglass
