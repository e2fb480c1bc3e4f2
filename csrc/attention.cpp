// attention(query, key, value, mask, is_causal, scale, *, out=(output, logsumexp)) -> None
//     softmax(scale * query key^T + mask) value by heads, into `output`. query [batch, heads, queries, depth], key
//     [batch, heads, keys, depth], value [batch, heads, keys, width], output as query with `width`; `mask` None or
//     [batch, heads, queries, keys], 0 strides allowed; `logsumexp` None or [batch, heads, queries]: the logarithms of
//     the softmax's sums. float32 on the CPU, no sizes of 0. is_causal: query i sees the keys 0 to i. A query that sees
//     nothing gives 0. ValueError names the argument that does not fit, RuntimeError a processor without AVX-512.
//
// PyTorch's flash attention for CPUs multiplies blocks by MKL and computes what a causal mask hides, in blocks of 512
// keys. Here all scores of 32 queries stay in cache (attention_avx512.cpp), and hidden keys are left out.
#include "attention.h"
#include "memory.h"
#include "tensor_facts.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <initializer_list>

namespace torchglass {
namespace {

constexpr int64_t WORK = 1 << 15;  // cycles that are worth a thread, about

bool attention_runs() {
#if defined(__x86_64__) && defined(__GNUC__)
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
  return false;
#endif
}

// The data of a float32 tensor of the given sizes, its strides but the last in `strides`; null with ValueError set.
// `rows`: the last stride must be 1 and is not written.
float* read(PyObject* object, const char* name, std::initializer_list<int64_t> sizes, int64_t* strides, bool rows) {
  if (!is_tensor(object)) {
    PyErr_Format(PyExc_TypeError, "attention: %s must be a Tensor, not %.200s", name, Py_TYPE(object)->tp_name);
    return nullptr;
  }
  const at::Tensor& tensor = THPVariable_Unpack(object);
  const at::IntArrayRef wanted(sizes.begin(), sizes.size());
  const bool plain = tensor.layout() == at::kStrided && tensor.device().is_cpu() && tensor.scalar_type() == at::kFloat;
  if (!plain || tensor.sizes() != wanted || (rows && wanted.back() > 1 && tensor.strides().back() != 1)) {
    PyErr_Format(PyExc_ValueError, "attention: %s does not fit: float32 on the CPU, of the sizes of the others%s", name,
                 rows ? " and dense in the last dimension" : "");
    return nullptr;
  }
  const size_t count = wanted.size() - (rows ? 1 : 0);
  for (size_t i = 0; i < count; ++i) strides[i] = tensor.strides()[i];
  try {
    return static_cast<float*>(tensor.data_ptr());
  } catch (const std::exception& error) {  // a fake tensor
    PyErr_Format(PyExc_ValueError, "attention: %s has no data: %.200s", name, error.what());
    return nullptr;
  }
}

// The sizes of a tensor of four dimensions, none of them 0; false with an exception set for anything else.
bool read_sizes(PyObject* object, const char* name, int64_t* sizes) {
  if (!is_tensor(object) || THPVariable_Unpack(object).dim() != 4 || THPVariable_Unpack(object).numel() == 0) {
    PyErr_Format(PyExc_ValueError, "attention: %s must be a Tensor of four dimensions and not empty", name);
    return false;
  }
  const auto found = THPVariable_Unpack(object).sizes();
  std::copy(found.begin(), found.end(), sizes);
  return true;
}

bool read_arguments(PyObject* const* args, PyObject* output, PyObject* logsumexp, Attention& a) {
  int64_t query[4], value[4];
  if (!read_sizes(args[0], "query", query) || !read_sizes(args[2], "value", value)) return false;
  a.batch = query[0], a.heads = query[1], a.queries = query[2], a.depth = query[3];
  a.keys = value[2], a.width = value[3];
  a.query = read(args[0], "query", {a.batch, a.heads, a.queries, a.depth}, a.query_strides, true);
  if (a.query == nullptr) return false;
  a.key = read(args[1], "key", {a.batch, a.heads, a.keys, a.depth}, a.key_strides, true);
  if (a.key == nullptr) return false;
  a.value = read(args[2], "value", {a.batch, a.heads, a.keys, a.width}, a.value_strides, true);
  if (a.value == nullptr) return false;
  a.mask = nullptr;
  if (args[3] != Py_None) {
    a.mask = read(args[3], "mask", {a.batch, a.heads, a.queries, a.keys}, a.mask_strides, false);
    if (a.mask == nullptr) return false;
  }
  const int causal = PyObject_IsTrue(args[4]);
  const double scale = PyFloat_AsDouble(args[5]);
  if (causal < 0 || (scale == -1 && PyErr_Occurred())) return false;
  a.causal = causal != 0;
  a.scale = static_cast<float>(scale);
  a.output = read(output, "out[0]", {a.batch, a.heads, a.queries, a.width}, a.output_strides, true);
  if (a.output == nullptr) return false;
  a.logsumexp = nullptr;
  if (logsumexp != Py_None) {
    a.logsumexp = read(logsumexp, "out[1]", {a.batch, a.heads, a.queries}, a.logsumexp_strides, false);
    if (a.logsumexp == nullptr) return false;
  }
  return true;
}

void compute(const Attention& a) {
  const int64_t tasks = a.batch * a.heads * attention_panels(a);
  const int64_t each = (attention_scratch(a) + 15) / 16 * 16;
  const int64_t grain = WORK / (a.keys * (a.depth + a.width)) + 1;
  const int64_t threads = std::min<int64_t>(at::get_num_threads(), (tasks + grain - 1) / grain);
  const at::Tensor memory = empty_kept({each * threads}, {1}, at::kFloat);
  float* scratch = memory.mutable_data_ptr<float>();
  at::parallel_for(0, tasks, grain, [&](int64_t first, int64_t last) {
    attend(a, first, last, scratch + each * at::get_thread_num());
  });
}

PyObject* attention(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  const bool named = names != nullptr && PyTuple_GET_SIZE(names) == 1 &&
                     PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "out") == 0;
  if (count != 6 || !named || !PyTuple_Check(args[6]) || PyTuple_GET_SIZE(args[6]) != 2) {
    PyErr_SetString(
        PyExc_TypeError, "attention(query, key, value, mask, is_causal, scale, *, out=(output, logsumexp)) takes just these");
    return nullptr;
  }
  if (!attention_runs()) {
    PyErr_SetString(PyExc_RuntimeError, "attention: this processor has no AVX-512");
    return nullptr;
  }
  Attention a;
  if (!read_arguments(args, PyTuple_GET_ITEM(args[6], 0), PyTuple_GET_ITEM(args[6], 1), a)) return nullptr;
  without_gil([&] { compute(a); });
  Py_RETURN_NONE;
}

PyMethodDef attention_functions[] = {
    {"attention",
     method<attention>(),
     METH_FASTCALL | METH_KEYWORDS,
     "attention(query, key, value, mask, is_causal, scale, *, out=(output, logsumexp)): scaled dot product attention of "
     "float32 on the CPU, past the dispatcher."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_attention(PyObject* module) {
  PyObject* runs = attention_runs() ? Py_True : Py_False;
  if (PyModule_AddObjectRef(module, "attention_runs", runs) < 0) return -1;
  return PyModule_AddFunctions(module, attention_functions);
}

}  // namespace torchglass
