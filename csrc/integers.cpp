#include "integers.h"

#include <utility>

namespace torchglass {

IntegerOperator integer_operator(PyObject* function) {
  static constexpr std::pair<const char*, IntegerOperator> kNames[] = {
      {"add", IntegerOperator::Add},           {"sub", IntegerOperator::Sub}, {"mul", IntegerOperator::Mul},
      {"floordiv", IntegerOperator::FloorDiv}, {"mod", IntegerOperator::Mod}, {"lt", IntegerOperator::Lt},
      {"le", IntegerOperator::Le},             {"eq", IntegerOperator::Eq},   {"ne", IntegerOperator::Ne},
      {"ge", IntegerOperator::Ge},             {"gt", IntegerOperator::Gt},
  };
  Ref module(PyImport_ImportModule("_operator"));
  for (const auto& [name, which] : kNames) {
    Ref known(module ? PyObject_GetAttrString(module.get(), name) : nullptr);
    if (!known) PyErr_Clear();
    if (known.get() == function) return which;
  }
  return IntegerOperator::None;
}

bool compares(IntegerOperator which) { return which >= IntegerOperator::Lt; }

std::optional<int64_t> integer_of(PyObject* value) {
  if (value == nullptr || !PyLong_CheckExact(value)) return std::nullopt;
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow != 0) return std::nullopt;
  return number;
}

std::optional<int64_t> apply(IntegerOperator which, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (which) {
    case IntegerOperator::Add:
      return __builtin_add_overflow(a, b, &result) ? std::nullopt : std::optional(result);
    case IntegerOperator::Sub:
      return __builtin_sub_overflow(a, b, &result) ? std::nullopt : std::optional(result);
    case IntegerOperator::Mul:
      return __builtin_mul_overflow(a, b, &result) ? std::nullopt : std::optional(result);
    case IntegerOperator::FloorDiv:
    case IntegerOperator::Mod: {
      if (b == 0 || (b == -1 && a == INT64_MIN)) return std::nullopt;
      const bool down = a % b != 0 && (a < 0) != (b < 0);  // Python rounds down, C to zero
      return which == IntegerOperator::FloorDiv ? a / b - down : a % b + (down ? b : 0);
    }
    case IntegerOperator::Lt:
      return a < b;
    case IntegerOperator::Le:
      return a <= b;
    case IntegerOperator::Eq:
      return a == b;
    case IntegerOperator::Ne:
      return a != b;
    case IntegerOperator::Ge:
      return a >= b;
    case IntegerOperator::Gt:
      return a > b;
    case IntegerOperator::None:
      break;
  }
  return std::nullopt;
}

}  // namespace torchglass
