// What a compiled graph relies on in a tensor, and the comparison of a tensor with it.
#pragma once

#include "native.h"

#include <c10/core/Device.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/typeid.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
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

  // Whether a plain tensor has exactly this layout; false where `any` or sizes of 1 need a closer look.
  C10_ALWAYS_INLINE bool match_layout(const c10::TensorImpl& impl) const {
    if ((impl.key_set().raw_repr() & trait_mask) != traits_ || impl.dtype() != dtype_) return false;
    const auto sizes = impl.sizes();
    const auto strides = impl.strides();
    const size_t rank = sizes_.size();
    if (sizes.size() != rank || strides_.size() != rank || impl.device() != device_) return false;
    int64_t difference = 0;
    for (size_t i = 0; i < rank; ++i) difference |= (sizes[i] ^ sizes_[i]) | (strides[i] ^ strides_[i]);
    return difference == 0;
  }

  static const uint64_t trait_mask;  // the dispatch keys that are traits

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

// TensorImpl's member, private to it: its accessor is a call into another library, for each parameter of a model. An
// explicit instantiation may name what is private, and defines the function that hands it out.
struct Opened {};
constexpr auto autograd_meta_member(Opened);
template <auto Member>
struct Open {
  friend constexpr auto autograd_meta_member(Opened) { return Member; }
};
template struct Open<&c10::TensorImpl::autograd_meta_>;

// A tensor that matched, with the pointers on the way to its metadata, so that they can be fetched ahead and compared
// rather than followed. While none of what is looked at differs it matches still; what differs may be harmless (strides
// of a dimension of size 1), so then `facts` decides, and a new snapshot is taken. What the facts expect is shared by
// many tensors, so that a check reads the tensor's own memory and little else.
//
// For tensors without unusual traits and of at most five dimensions: the sizes of others lie elsewhere.
class TensorSnapshot {
 public:
  // `object` is a tensor that `facts` has just matched, if it is a tensor at all.
  TensorSnapshot(PyObject* object, const TensorFacts* facts);

  // `dual`: whether a level of forward-mode differentiation is entered, outside of which no tensor has such a gradient.
  bool holds(bool dual) {
    if (C10_LIKELY(!dual && is_unchanged())) return true;
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
    if (autograd_ != nullptr) __builtin_prefetch(&autograd_->requires_grad_);
  }

 private:
  using AutogradMeta = torch::autograd::AutogradMeta;

  bool is_unchanged() const {
    if (implementation_ == nullptr || Py_TYPE(object_) != facts_->type_) return false;
    if (THPVariable_Unpack(object_).unsafeGetTensorImpl() != implementation_) return false;
    if (meta_of(*implementation_) != autograd_ || !facts_->match_layout(*implementation_)) return false;
    if (autograd_ == nullptr) return true;
    return (autograd_->requires_grad_ || autograd_->grad_fn_) == facts_->requires_grad_;
  }

  static const AutogradMeta* meta_of(const c10::TensorImpl& implementation) {
    return static_cast<const AutogradMeta*>((implementation.*autograd_meta_member(Opened{})).get());
  }

  PyObject* object_;  // borrowed, as all in a memo
  const TensorFacts* facts_;
  const c10::TensorImpl* implementation_ = nullptr;  // null: no snapshot of such a tensor
  const AutogradMeta* autograd_ = nullptr;
};

int add_tensor_facts(PyObject* module);

}  // namespace torchglass
