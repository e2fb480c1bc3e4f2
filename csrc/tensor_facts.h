// What a compiled graph relies on in a tensor, and the comparison of a tensor with it.
#pragma once

#include "native.h"

#include <c10/core/Device.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/typeid.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

namespace torchglass {

// TensorImpl's members that it does not show, or only by calls into another library, for each parameter of a model. An
// explicit instantiation may name what is private, and defines the function that hands it out.
namespace opened {

struct AutogradMeta {};
constexpr auto member(AutogradMeta);
struct SizesAndStrides {};
constexpr auto member(SizesAndStrides);
struct DataType {};
constexpr auto member(DataType);

template <class Name, auto Member>
struct Open {
  friend constexpr auto member(Name) { return Member; }
};
template struct Open<AutogradMeta, &c10::TensorImpl::autograd_meta_>;
template struct Open<SizesAndStrides, &c10::TensorImpl::sizes_and_strides_>;
template struct Open<DataType, &c10::TensorImpl::data_type_>;

}  // namespace opened

// The sizes and strides of a tensor as they lie in it if there are at most five: their number, room for five sizes and
// room for five strides. A comparison looks at all of it and masks what is not compared, so that it has no branches.
class LayoutWords {
 public:
  static constexpr size_t room = C10_SIZES_AND_STRIDES_MAX_INLINE_SIZE;

  explicit LayoutWords(size_t rank) : rank_(rank) {}
  void compare_size(size_t dimension, int64_t size) { expect(dimension, size); }
  void compare_stride(size_t dimension, int64_t stride) { expect(room + dimension, stride); }

  // Zero if the tensor has as many dimensions, and the sizes and strides that are compared.
  C10_ALWAYS_INLINE uint64_t difference(const c10::TensorImpl& impl) const {
    const auto& layout = impl.*member(opened::SizesAndStrides{});
    const char* const words = reinterpret_cast<const char*>(&layout) + sizeof(uint64_t);
    Pair sum = {};
    for (size_t i = 0; i < room; ++i) {
      Pair found;
      std::memcpy(&found, words + i * sizeof(Pair), sizeof(Pair));
      sum |= (found ^ expected_[i]) & mask_[i];
    }
    return (layout.size() ^ rank_) | sum[0] | sum[1];
  }

 private:
  using Pair = uint64_t __attribute__((vector_size(16)));
  static_assert(sizeof(c10::impl::SizesAndStrides) == sizeof(uint64_t) + room * sizeof(Pair));

  void expect(size_t word, int64_t value) {
    expected_[word / 2][word % 2] = static_cast<uint64_t>(value);
    mask_[word / 2][word % 2] = ~uint64_t{0};
  }

  Pair expected_[room] = {};
  Pair mask_[room] = {};
  uint64_t rank_;
};

// Whether `object` is a torch.Tensor or of a subclass. Runs no Python code.
bool is_tensor(PyObject* object);

// A stride that follows from sizes: that of dimension `of` is `factor` times the sizes of `dimensions`.
struct StrideProduct {
  size_t of;
  int64_t factor;
  std::vector<size_t> dimensions;
};

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

  void make_layout();

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
  std::vector<StrideProduct> products_;
  std::optional<LayoutWords> layout_;  // none if the tensor's sizes lie elsewhere, or decide on strides
};

// A tensor that matched, with the pointers on the way to its metadata, so that they are compared rather than followed, and
// the processor can read far ahead. While none of what is looked at differs it matches still; what differs may be harmless (strides
// of a dimension of size 1), so then `facts` decides, and a new snapshot is taken. What the facts expect is shared by
// many tensors, so that a check reads the tensor's own memory and little else.
//
// For tensors without unusual traits and of at most five dimensions: the sizes of others lie elsewhere.
class TensorSnapshot {
 public:
  // `object` is a tensor that `facts` has just matched, if it is a tensor at all.
  TensorSnapshot(PyObject* object, const TensorFacts* facts);

  // `dual`: whether a level of forward-mode differentiation is entered, outside of which no tensor has such a gradient.
  C10_ALWAYS_INLINE bool holds(bool dual) { return C10_LIKELY(!dual && is_unchanged()) || matches_anew(); }

  // Whether it changes in the ways of mutations.h alone. Others come to require a gradient in operations in place.
  bool is_leaf_with_grad() const {
    return implementation_ != nullptr && autograd_ != nullptr && autograd_->requires_grad_ && !autograd_->grad_fn_;
  }

 private:
  using AutogradMeta = torch::autograd::AutogradMeta;

  C10_ALWAYS_INLINE bool is_unchanged() const {
    if (implementation_ == nullptr || Py_TYPE(object_) != facts_->type_) return false;
    const c10::TensorImpl* const implementation = THPVariable_Unpack(object_).unsafeGetTensorImpl();
    if (implementation != implementation_ || meta_of(*implementation) != autograd_) return false;
    const uint64_t difference = (form_of(*implementation) ^ form_) |
        (implementation->key_set().raw_repr() ^ keys_) | facts_->layout_->difference(*implementation);
    if (difference != 0) return false;
    return autograd_ == nullptr || (autograd_->requires_grad_ || autograd_->grad_fn_) == facts_->requires_grad_;
  }

  bool matches_anew();

  static const AutogradMeta* meta_of(const c10::TensorImpl& implementation) {
    return static_cast<const AutogradMeta*>((implementation.*member(opened::AutogradMeta{})).get());
  }

  // The word of a tensor that begins with its dtype: after it come the device and bits, as whether it is contiguous.
  static uint64_t form_of(const c10::TensorImpl& implementation) {
    uint64_t word;
    std::memcpy(&word, &(implementation.*member(opened::DataType{})), sizeof(word));
    return word;
  }

  PyObject* object_;  // borrowed, as all in a memo
  const TensorFacts* facts_;
  const c10::TensorImpl* implementation_ = nullptr;  // null: no snapshot of such a tensor
  const AutogradMeta* autograd_ = nullptr;
  uint64_t form_ = 0;
  uint64_t keys_ = 0;
};

int add_tensor_facts(PyObject* module);

}  // namespace torchglass
