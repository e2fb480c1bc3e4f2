// A tensor's facts: exact Python type, dtype, device, sizes, strides, requires_grad and unusual traits.
//
//   tensor_flags(tensor) -> tuple[str, ...]
//       The traits that set a tensor apart from a plain strided one, e.g. ("conj",) for x.conj(); () for most.
//
// Strides of dimensions of size 1, and of tensors without elements, are not compared: no kernel reads through them.
#include "tensor_facts.h"

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <cstring>

namespace torchglass {
namespace {

struct Trait {
  const char* name;
  c10::DispatchKey key;
};

// Dispatch keys that change what an operation does. Those that only name backend or autograd are left out.
const Trait traits[] = {
    {"conj", c10::DispatchKey::Conjugate},
    {"neg", c10::DispatchKey::Negative},
    {"zero", c10::DispatchKey::ZeroTensor},
    {"python", c10::DispatchKey::Python},
    {"functionalize", c10::DispatchKey::Functionalize},
    {"functorch_batched", c10::DispatchKey::FuncTorchBatched},
    {"functorch_grad", c10::DispatchKey::FuncTorchGradWrapper},
    {"batched_nested", c10::DispatchKey::BatchedNestedTensor},
    {"nested", c10::DispatchKey::NestedTensor},
    {"quantized", c10::DispatchKey::Quantized},
    {"sparse", c10::DispatchKey::Sparse},
    {"sparse_compressed", c10::DispatchKey::SparseCsr},
    {"mkldnn", c10::DispatchKey::MkldnnCPU},
};

// Ordinary tensors have this key, inference tensors lack it.
constexpr c10::DispatchKey normal_key = c10::DispatchKey::ADInplaceOrView;

uint64_t bits_of(c10::DispatchKey key) {
  return c10::DispatchKeySet(key).raw_repr();
}

const torch::autograd::AutogradMeta* autograd_meta(const c10::TensorImpl& impl) {
  return static_cast<const torch::autograd::AutogradMeta*>(
      const_cast<c10::TensorImpl&>(impl).autograd_meta());
}

bool has_forward_grad(const torch::autograd::AutogradMeta* meta) {
  return meta != nullptr && meta->fw_grad_ && !meta->fw_grad_->empty();
}

// As Tensor.requires_grad says. A view also has its base's, without a member of its own: one made under no_grad.
bool requires_grad(const torch::autograd::AutogradMeta* meta) {
  if (meta == nullptr) return false;
  return meta->requires_grad_ || meta->grad_fn_ || (meta->is_view_ && meta->requires_grad());
}

bool read_numbers(PyObject* tuple, std::vector<int64_t>& out) {
  if (!PyTuple_Check(tuple)) {
    PyErr_SetString(PyExc_TypeError, "shape and strides of a TensorMeta must be tuples");
    return false;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    PyObject* item = PyTuple_GET_ITEM(tuple, i);
    const bool open = item == Py_None || PyTuple_Check(item);
    const long long value = open ? TensorFacts::any : PyLong_AsLongLong(item);
    if (value == -1 && PyErr_Occurred()) return false;
    out.push_back(value);
  }
  return true;
}

// Strides that are tuples: a factor, then dimensions of `rank` whose sizes it is multiplied by.
bool read_products(PyObject* strides, size_t rank, std::vector<StrideProduct>& out) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(strides); ++i) {
    PyObject* item = PyTuple_GET_ITEM(strides, i);
    if (!PyTuple_Check(item)) continue;
    std::vector<int64_t> numbers;
    if (!read_numbers(item, numbers)) return false;
    StrideProduct product{static_cast<size_t>(i), numbers.empty() ? 1 : numbers[0], {}};
    for (size_t n = 1; n < numbers.size(); ++n) {
      if (numbers[n] < 0 || static_cast<size_t>(numbers[n]) >= rank) {
        PyErr_SetString(PyExc_ValueError, "a stride of a TensorMeta names a dimension that it does not have");
        return false;
      }
      product.dimensions.push_back(static_cast<size_t>(numbers[n]));
    }
    out.push_back(std::move(product));
  }
  return true;
}

bool read_flags(PyObject* flags, uint64_t& bits, bool& forward_grad) {
  bits = bits_of(normal_key);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(flags); ++i) {
    const char* name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(flags, i));
    if (name == nullptr) return false;
    if (std::strcmp(name, "inference") == 0) {
      bits &= ~bits_of(normal_key);
      continue;
    }
    if (std::strcmp(name, "forward_grad") == 0) {
      forward_grad = true;
      continue;
    }
    const Trait* found = nullptr;
    for (const Trait& trait : traits) {
      if (std::strcmp(name, trait.name) == 0) found = &trait;
    }
    if (found == nullptr) {
      PyErr_Format(PyExc_ValueError, "unknown tensor flag %s", name);
      return false;
    }
    bits |= bits_of(found->key);
  }
  return true;
}

bool append_name(PyObject* list, const char* name) {
  Ref text(PyUnicode_FromString(name));
  return text && PyList_Append(list, text.get()) == 0;
}

PyObject* tensor_flags(PyObject*, PyObject* object) {
  if (!is_tensor(object)) {
    PyErr_Format(PyExc_TypeError, "tensor_flags takes a Tensor, not %.200s", Py_TYPE(object)->tp_name);
    return nullptr;
  }
  const c10::TensorImpl& impl = *THPVariable_Unpack(object).unsafeGetTensorImpl();
  Ref names(PyList_New(0));
  if (!names) return nullptr;
  const uint64_t bits = impl.key_set().raw_repr();
  for (const Trait& trait : traits) {
    if ((bits & bits_of(trait.key)) != 0 && !append_name(names.get(), trait.name)) return nullptr;
  }
  if ((bits & bits_of(normal_key)) == 0 && !append_name(names.get(), "inference")) return nullptr;
  if (has_forward_grad(autograd_meta(impl)) && !append_name(names.get(), "forward_grad")) return nullptr;
  return PyList_AsTuple(names.get());
}

PyMethodDef tensor_facts_functions[] = {
    {"tensor_flags", method<tensor_flags>(), METH_O, "tensor_flags(tensor): names of its unusual traits, () for a plain one."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

const uint64_t TensorFacts::trait_mask = [] {
  uint64_t bits = bits_of(normal_key);
  for (const Trait& trait : traits) bits |= bits_of(trait.key);
  return bits;
}();

bool is_tensor(PyObject* object) {
  return THPVariable_CheckExact(object) ||
      PyType_IsSubtype(Py_TYPE(object), reinterpret_cast<PyTypeObject*>(THPVariableClass));
}

std::shared_ptr<TensorFacts> TensorFacts::from_tuple(PyObject* tuple) {
  PyObject *type, *dtype, *device, *shape, *strides, *flags;
  int requires_grad = 0;
  if (!expect_tuple(tuple, "what a tensor guard expects") || !PyArg_ParseTuple(
          tuple, "O!O!O!OOpO!", &PyType_Type, &type, &THPDtypeType, &dtype, &THPDeviceType, &device, &shape, &strides,
          &requires_grad, &PyTuple_Type, &flags)) {
    return nullptr;
  }
  if (!PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(type), reinterpret_cast<PyTypeObject*>(THPVariableClass))) {
    PyErr_SetString(PyExc_TypeError, "a TensorMeta's type must be a subclass of Tensor");
    return nullptr;
  }
  auto facts = std::make_shared<TensorFacts>();
  facts->type_ = reinterpret_cast<PyTypeObject*>(type);
  facts->dtype_ = c10::scalarTypeToTypeMeta(reinterpret_cast<THPDtype*>(dtype)->scalar_type);
  facts->device_ = reinterpret_cast<THPDevice*>(device)->device;
  facts->requires_grad_ = requires_grad != 0;
  if (!read_numbers(shape, facts->sizes_) || !read_numbers(strides, facts->strides_)) return nullptr;
  if (!read_products(strides, facts->sizes_.size(), facts->products_)) return nullptr;
  if (!read_flags(flags, facts->traits_, facts->forward_grad_)) return nullptr;
  facts->check_strides_ = facts->strides_.size() == facts->sizes_.size();  // sparse tensors have none
  for (const int64_t size : facts->sizes_) facts->check_strides_ &= size != 0;
  facts->make_layout();
  return facts;
}

void TensorFacts::make_layout() {
  const size_t rank = sizes_.size();
  if (rank > LayoutWords::room || !products_.empty()) return;
  layout_.emplace(rank);
  for (size_t i = 0; i < rank; ++i) {
    if (sizes_[i] != any) layout_->compare_size(i, sizes_[i]);
    if (check_strides_ && sizes_[i] != 1 && strides_[i] != any) layout_->compare_stride(i, strides_[i]);
  }
}

bool TensorFacts::match(PyObject* object) const {
  if (Py_TYPE(object) != type_) return false;  // a tensor type, as from_tuple has made sure
  try {
    return match_impl(*THPVariable_Unpack(object).unsafeGetTensorImpl());
  } catch (const std::exception&) {  // sizes of some wrapper are symbolic
    return false;
  }
}

bool TensorFacts::match_impl(const c10::TensorImpl& impl) const {
  if ((impl.key_set().raw_repr() & trait_mask) != traits_ || impl.dtype() != dtype_) return false;
  const auto sizes = impl.sizes();
  const size_t rank = sizes_.size();
  if (sizes.size() != rank || impl.device() != device_) return false;
  for (size_t i = 0; i < rank; ++i) {
    if (sizes[i] != sizes_[i] && sizes_[i] != any) return false;
  }
  const auto* meta = autograd_meta(impl);
  if (requires_grad(meta) != requires_grad_) return false;
  if (has_forward_grad(meta) != forward_grad_) return false;
  if (!check_strides_) return true;
  const auto strides = impl.strides();
  for (size_t i = 0; i < rank; ++i) {
    if (strides[i] != strides_[i] && sizes[i] != 1 && strides_[i] != any) return false;
  }
  for (const StrideProduct& product : products_) {
    int64_t expected = product.factor;
    for (const size_t dimension : product.dimensions) expected *= sizes[dimension];
    if (strides[product.of] != expected && sizes[product.of] != 1) return false;
  }
  return true;
}

TensorSnapshot::TensorSnapshot(PyObject* object, const TensorFacts* facts) : object_(object), facts_(facts) {
  if (!is_tensor(object) || facts->forward_grad_ || facts->traits_ != bits_of(normal_key)) return;
  if (!facts->layout_) return;
  const auto* implementation = THPVariable_Unpack(object).unsafeGetTensorImpl();
  const auto& layout = implementation->*member(opened::SizesAndStrides{});
  if (implementation->sizes().data() != layout.sizes_data()) return;  // it answers by other means
  autograd_ = meta_of(*implementation);
  if (autograd_ != nullptr && autograd_->is_view_) return;  // its base's requires_grad is its own, too
  implementation_ = implementation;
  form_ = form_of(*implementation);
  keys_ = implementation->key_set().raw_repr();
}

bool TensorSnapshot::matches_anew() {
  if (!facts_->match(object_)) return false;
  *this = TensorSnapshot(object_, facts_);
  return true;
}

int add_tensor_facts(PyObject* module) {
  return PyModule_AddFunctions(module, tensor_facts_functions);
}

}  // namespace torchglass
