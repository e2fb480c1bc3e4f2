// What a compiled graph relies on in a tensor, and the comparison of a tensor with it.
#pragma once

#include "native.h"

#include <c10/core/Device.h>
#include <c10/util/typeid.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace c10 {
struct TensorImpl;
}

namespace torchglass {

// Whether `object` is a torch.Tensor or of a subclass. Runs no Python code.
bool is_tensor(PyObject* object);

// The native form of records.guards.TensorMeta. A size or stride of `any` matches every value.
class TensorFacts {
 public:
  static constexpr int64_t any = INT64_MIN;

  // From (type, dtype, device, shape, strides, requires_grad, flags), which must outlive it; null with an exception
  // set if it is malformed.
  static std::shared_ptr<TensorFacts> from_tuple(PyObject* tuple);

  // Never raises, runs no Python code. False for an object that is no tensor.
  bool match(PyObject* object) const;

 private:
  bool match_impl(const c10::TensorImpl& impl) const;

  PyTypeObject* type_ = nullptr;  // borrowed from the tuple
  caffe2::TypeMeta dtype_;
  c10::Device device_{c10::kCPU};
  uint64_t traits_ = 0;
  bool requires_grad_ = false;
  bool forward_grad_ = false;
  bool check_strides_ = true;
  std::vector<int64_t> sizes_;
  std::vector<int64_t> strides_;
};

int add_tensor_facts(PyObject* module);

}  // namespace torchglass
