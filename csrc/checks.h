// One guard on one value. The rows of records.guards.CHECKS that look at a single value, natively.
#pragma once

#include "native.h"
#include "tensor_facts.h"

#include <memory>

namespace torchglass {

enum class Check : uint8_t {
  Type,
  Identity,
  Constant,
  Tensor,
  Length,
  DictKeys,
  DictHas,
  DictLacks,
  HasAttr,
  LacksAttr,
  ClassHas,
  ClassKind,
  ClassLacks,
  Mro,
};

// A check and what it compares with.
struct Condition {
  Check check = Check::Identity;
  Ref expected;
  Py_ssize_t length = 0;
  std::shared_ptr<TensorFacts> tensor;

  // `name` is the row's name; false with an exception set if it is unknown or `expected` does not fit.
  static bool make(const char* name, PyObject* expected, Condition& out);

  // Whether it holds for `value`, which the caller keeps alive. Leaves no exception set: one that is raised is a no.
  bool holds(PyObject* value) const;

  // Whether holds(value) cannot run Python code.
  bool is_pure(PyObject* value) const;

  // Whether it stays true of one living object, whatever happens to that object.
  bool is_permanent() const;

  // Whether it stays true of `value` while that is the same dict with the same version.
  bool is_covered_by_version(PyObject* value) const;

  // Whether it asks a class for nothing but what it and its bases have: true while its version is the same.
  bool is_about_class() const;

  // Whether it says of `value` that it is an empty dict, and no more.
  bool asks_for_empty_dict(PyObject* value) const;
};

// Equal type and equal value, inside tuples and frozensets too; 0.0 and -0.0 differ, NaN equals NaN. Objects of types
// other than Python's and torch's immutable ones are equal only to themselves. Runs no Python code.
bool same_constant(PyObject* value, PyObject* expected);

int add_checks(PyObject* module);

}  // namespace torchglass
