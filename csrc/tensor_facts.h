// What a compiled graph relies on in a tensor, and the comparison of a tensor with it.
#pragma once

#include "native.h"

#include <c10/core/Device.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/typeid.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

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
  friend class TensorSnapshot;
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

// A tensor that matched, as it lay in memory then: while nothing of that differs it matches still. What differs may be
// harmless (another storage after `.data = `), so then `facts` decides, and a new snapshot is taken.
//
// All that `match` looks at lies in the Python object (class, implementation), in the TensorImpl after its reference
// counts, and in three fields of its AutogradMeta, for tensors without unusual traits and of at most five dimensions.
class TensorSnapshot {
 public:
  // `object` is a tensor that `facts` has just matched, if it is a tensor at all.
  TensorSnapshot(PyObject* object, const TensorFacts* facts);

  bool holds() {
    if (C10_LIKELY(is_unchanged())) return true;
    if (!facts_->match(object_)) return false;
    *this = TensorSnapshot(object_, facts_);
    return true;
  }

  // Asks for the memory that `holds` will read.
  void prefetch() const {
    __builtin_prefetch(object_);
    for (size_t offset = 0; offset < sizeof(c10::TensorImpl); offset += 64) {
      __builtin_prefetch(reinterpret_cast<const char*>(implementation_) + offset);
    }
    if (autograd_ != nullptr) {
      __builtin_prefetch(&autograd_->grad_fn_);
      __builtin_prefetch(&autograd_->requires_grad_);
    }
  }

 private:
  static constexpr size_t counts = sizeof(c10::intrusive_ptr_target);
  using Bytes = std::array<char, sizeof(c10::TensorImpl) - counts>;

  static const char* bytes_of(const c10::TensorImpl* implementation) {
    return reinterpret_cast<const char*>(implementation) + counts;
  }

  bool is_unchanged() const {
    if (implementation_ == nullptr || Py_TYPE(object_) != facts_->type_) return false;
    if (THPVariable_Unpack(object_).unsafeGetTensorImpl() != implementation_) return false;
    if (std::memcmp(bytes_of(implementation_), bytes_.data(), sizeof(Bytes)) != 0) return false;
    if (autograd_ == nullptr) return true;
    return (autograd_->requires_grad_ || autograd_->grad_fn_) == facts_->requires_grad_ && !autograd_->fw_grad_;
  }

  PyObject* object_;  // borrowed, as all in a memo
  const TensorFacts* facts_;
  const c10::TensorImpl* implementation_ = nullptr;  // null: no snapshot of such a tensor
  const torch::autograd::AutogradMeta* autograd_ = nullptr;
  Bytes bytes_;
};

int add_tensor_facts(PyObject* module);

}  // namespace torchglass
