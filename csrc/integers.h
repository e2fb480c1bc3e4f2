// What Python's operators give for whole numbers, computed on machine integers: guards on sizes compute little else.
#pragma once

#include "native.h"

#include <cstdint>
#include <optional>

namespace torchglass {

enum class IntegerOperator : uint8_t { None, Add, Sub, Mul, FloorDiv, Mod, Lt, Le, Eq, Ne, Ge, Gt };

// Which of the functions of `operator` it is.
IntegerOperator integer_operator(PyObject* function);

// Whether it gives a truth value.
bool compares(IntegerOperator which);

// An exact int of 64 bits.
std::optional<int64_t> integer_of(PyObject* value);

// Nothing where 64 bits do not hold the result, or there is none.
std::optional<int64_t> apply(IntegerOperator which, int64_t a, int64_t b);

}  // namespace torchglass
