// What a graph that writes to its inputs needs around a call.
//
//   overlap(inputs: tuple, written: tuple[int, ...]) -> bool
//       Whether one of the inputs at `written` shares memory with another input, or may: where files are mapped.
//   write_back(inputs: tuple, results: tuple, writes: tuple[tuple[int, int, int], ...]) -> None
//       For each (input, result, kind) inputs[input].copy_(results[result]): 0 as autograd records it, 1 unseen by it,
//       2 unseen by version counters too. A result that is the input itself was written there by a kernel: only the
//       version is counted.
#include "native.h"
#include "tensor_facts.h"

#include <ATen/MapAllocator.h>
#include <ATen/ops/_foreach_copy.h>
#include <c10/core/GradMode.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <unordered_map>

namespace torchglass {
namespace {

struct Range {
  uintptr_t begin, end;
};

// The addresses from a tensor's first to past its last element; empty for one without elements.
Range range_of(const at::Tensor& tensor) {
  const auto begin = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  int64_t last = 0;
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.size(i) == 0) return {begin, begin};
    last += (tensor.size(i) - 1) * tensor.stride(i);
  }
  return {begin, begin + static_cast<uintptr_t>(last + 1) * tensor.itemsize()};
}

bool read_tensors(PyObject* tuple, std::vector<const at::Tensor*>& out) {
  const Py_ssize_t count = PyTuple_GET_SIZE(tuple);
  out.reserve(static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = PyTuple_GET_ITEM(tuple, i);
    if (!is_tensor(item)) {
      PyErr_Format(PyExc_TypeError, "overlap: input %zd is no tensor", i);
      return false;
    }
    out.push_back(&THPVariable_Unpack(item));
  }
  return true;
}

// The address of each tensor's memory, whoever shares it; 0 for one without.
std::vector<uintptr_t> memory_of(const std::vector<const at::Tensor*>& tensors) {
  std::vector<uintptr_t> memory;
  memory.reserve(tensors.size());
  for (const auto* tensor : tensors) {
    const bool holds = tensor->has_storage();
    memory.push_back(holds ? reinterpret_cast<uintptr_t>(tensor->storage().data()) : 0);
  }
  return memory;
}

// Whether no two addresses are the same, but for zeros: a table of twice as many places.
bool all_differ(const std::vector<uintptr_t>& addresses) {
  size_t bits = 4;
  while ((size_t{1} << bits) < 2 * addresses.size()) ++bits;
  std::vector<uintptr_t> table(size_t{1} << bits);
  for (const uintptr_t address : addresses) {
    if (address == 0) continue;
    size_t place = (address * 0x9E3779B97F4A7C15u) >> (64 - bits);
    while (table[place] != 0) {
      if (table[place] == address) return false;
      place = (place + 1) & (table.size() - 1);
    }
    table[place] = address;
  }
  return true;
}

// Whether some memory is not PyTorch's own: NumPy's arrays may share theirs through several storages.
bool any_foreign(const std::vector<const at::Tensor*>& tensors) {
  for (const auto* tensor : tensors) {
    if (tensor->has_storage() && tensor->storage().data() != nullptr && tensor->storage().allocator() == nullptr) {
      return true;
    }
  }
  return false;
}

// The mapping that a tensor's memory is; null for other memory, and for parts of a mapping that are storages.
const at::MapAllocator* mapping_of(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return nullptr;
  const auto& memory = tensor.storage().data_ptr();
  if (const auto* found = at::MapAllocator::fromDataPtr(memory)) return found;
  return at::RefcountedMapAllocator::fromDataPtr(memory);
}

// Whether a file that is written through one mapping may lie behind another one too, at other addresses. Shared memory
// keeps its file open, which says what it is; one that is closed may be any.
bool meets_in_a_file(const std::vector<const at::Tensor*>& tensors, const std::vector<size_t>& written) {
  std::unordered_map<const at::MapAllocator*, bool> mappings;
  for (const size_t i : written) {
    if (const auto* mapping = mapping_of(*tensors[i])) mappings.emplace(mapping, true);
  }
  if (mappings.empty()) return false;
  for (const auto* tensor : tensors) {
    if (const auto* mapping = mapping_of(*tensor)) mappings.emplace(mapping, false);
  }
  if (mappings.size() == 1) return false;
  std::map<std::pair<dev_t, ino_t>, bool> files;
  for (const auto& [mapping, is_written] : mappings) {
    struct stat status;
    if (mapping->fd() < 0 || fstat(mapping->fd(), &status) != 0) return true;
    const auto [known, is_new] = files.emplace(std::pair{status.st_dev, status.st_ino}, is_written);
    if (!is_new && (known->second || is_written)) return true;
  }
  return false;
}

// The same as meets_another, by addresses alone.
bool meets_any(const std::vector<const at::Tensor*>& tensors, const std::vector<size_t>& written) {
  std::vector<std::pair<Range, bool>> ranges;
  for (const auto* tensor : tensors) ranges.emplace_back(range_of(*tensor), false);
  for (const size_t i : written) ranges[i].second = true;
  std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.first.begin < b.first.begin; });
  uintptr_t end = 0, written_end = 0;
  for (const auto& [range, is_written] : ranges) {
    if (range.begin == range.end) continue;
    if (range.begin < (is_written ? end : written_end)) return true;
    end = std::max(end, range.end);
    if (is_written) written_end = std::max(written_end, range.end);
  }
  return false;
}

// Whether a written tensor's addresses meet those of another one with the same memory.
bool meets_another(const std::vector<const at::Tensor*>& tensors, const std::vector<size_t>& written) {
  if (any_foreign(tensors)) return meets_any(tensors, written) || meets_in_a_file(tensors, written);
  const auto memory = memory_of(tensors);
  if (all_differ(memory)) return false;
  std::unordered_map<uintptr_t, std::vector<size_t>> sharing;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (memory[i] != 0) sharing[memory[i]].push_back(i);
  }
  for (const size_t i : written) {
    if (memory[i] == 0 || sharing[memory[i]].size() == 1) continue;
    const Range mine = range_of(*tensors[i]);
    for (const size_t other : sharing[memory[i]]) {
      const Range its = range_of(*tensors[other]);
      if (other != i && mine.begin < its.end && its.begin < mine.end) return true;
    }
  }
  return false;
}

PyObject* overlap(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 2 || !PyTuple_Check(args[0]) || !PyTuple_Check(args[1])) {
    PyErr_SetString(PyExc_TypeError, "overlap(inputs, written) takes two tuples");
    return nullptr;
  }
  std::vector<const at::Tensor*> tensors;
  if (!read_tensors(args[0], tensors)) return nullptr;
  std::vector<size_t> written;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args[1]); ++i) {
    const Py_ssize_t index = PyLong_AsSsize_t(PyTuple_GET_ITEM(args[1], i));
    if (index == -1 && PyErr_Occurred()) return nullptr;
    if (index < 0 || static_cast<size_t>(index) >= tensors.size()) {
      PyErr_Format(PyExc_IndexError, "overlap: there is no input %zd", index);
      return nullptr;
    }
    written.push_back(static_cast<size_t>(index));
  }
  return PyBool_FromLong(meets_another(tensors, written));
}

enum Kind : long { tracked = 0, unseen = 1, uncounted = 2 };

void write(const at::Tensor& target, const at::Tensor& source, bool same, long kind) {
  if (same) {
    if (kind != uncounted) target.unsafeGetTensorImpl()->bump_version();
    return;
  }
  without_gil([&] {
    if (kind == tracked) {
      target.copy_(source);
    } else {
      const c10::AutoGradMode no_grad(false);
      (kind == unseen ? target : target.variable_data()).copy_(source);
    }
  });
}

// Writes to a GPU's tensors that autograd does not see: one launch for many of a dtype, in place of one for each of a
// network's 159 running statistics. Targets share no memory, so that their order is nobody's concern.
class Together {
 public:
  bool take(const at::Tensor& target, const at::Tensor& source, long kind) {
    if (kind == tracked || !target.is_cuda() || !source.is_cuda() || target.sizes() != source.sizes()) return false;
    const auto same = [&](const Group& group) { return alike(group.targets[0], target) && alike(group.sources[0], source); };
    auto group = std::find_if(groups_.begin(), groups_.end(), same);
    if (group == groups_.end()) group = groups_.insert(group, Group{});
    group->targets.push_back(kind == unseen ? target : target.variable_data());
    group->sources.push_back(source);
    return true;
  }

  void write() const {
    if (groups_.empty()) return;
    without_gil([&] {
      const c10::AutoGradMode no_grad(false);
      for (const Group& group : groups_) at::_foreach_copy_(group.targets, group.sources);
    });
  }

 private:
  struct Group {
    std::vector<at::Tensor> targets, sources;
  };

  static bool alike(const at::Tensor& a, const at::Tensor& b) {
    return a.scalar_type() == b.scalar_type() && a.device() == b.device();
  }

  std::vector<Group> groups_;
};

// The tensor at a place that an item of `writes` names; null with an exception set where there is none.
PyObject* at_place(PyObject* tuple, PyObject* write, Py_ssize_t which) {
  const Py_ssize_t index = PyLong_AsSsize_t(PyTuple_GET_ITEM(write, which));
  if (index == -1 && PyErr_Occurred()) return nullptr;
  if (index < 0 || index >= PyTuple_GET_SIZE(tuple) || !is_tensor(PyTuple_GET_ITEM(tuple, index))) {
    PyErr_Format(PyExc_TypeError, "write_back: there is no tensor %zd", index);
    return nullptr;
  }
  return PyTuple_GET_ITEM(tuple, index);
}

PyObject* write_back(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 3 || !PyTuple_Check(args[0]) || !PyTuple_Check(args[1]) || !PyTuple_Check(args[2])) {
    PyErr_SetString(PyExc_TypeError, "write_back(inputs, results, writes) takes three tuples");
    return nullptr;
  }
  Together together;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args[2]); ++i) {
    PyObject* item = PyTuple_GET_ITEM(args[2], i);
    if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 3) {
      PyErr_SetString(PyExc_TypeError, "write_back: writes are tuples of three");
      return nullptr;
    }
    PyObject* target = at_place(args[0], item, 0);
    PyObject* source = target == nullptr ? nullptr : at_place(args[1], item, 1);
    if (source == nullptr) return nullptr;
    const long kind = PyLong_AsLong(PyTuple_GET_ITEM(item, 2));
    if (kind == -1 && PyErr_Occurred()) return nullptr;
    const at::Tensor &to = THPVariable_Unpack(target), &from = THPVariable_Unpack(source);
    if (target == source || !together.take(to, from, kind)) write(to, from, target == source, kind);
  }
  together.write();
  Py_RETURN_NONE;
}

PyMethodDef write_back_functions[] = {
    {"overlap",
     method<overlap>(),
     METH_FASTCALL,
     "overlap(inputs, written): whether an input that is written to shares memory with another."},
    {"write_back",
     method<write_back>(),
     METH_FASTCALL,
     "write_back(inputs, results, writes): copies results into the inputs that they are the new numbers of."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_write_back(PyObject* module) { return PyModule_AddFunctions(module, write_back_functions); }

}  // namespace torchglass
