// What the files of torchglass._native share: a reference holder, the types' entry points, tensor access.
//
// The module has no state of its own: every type keeps what it needs in its objects.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <utility>

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

// Each adds its types and functions to the module; -1 with an exception set on failure.
int add_launch(PyObject* module);
int add_write_back(PyObject* module);
int add_attention(PyObject* module);
int add_dispatch(PyObject* module);
int add_module_call(PyObject* module);
int add_thread_state(PyObject* module);
int add_answering(PyObject* module);

}  // namespace torchglass
