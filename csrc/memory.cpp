// Memory of generated graphs: blocks that are kept when a tensor dies and handed out again.
//
// glibc returns large blocks to the system on free, so every call of a compiled graph would meet fresh pages, and a
// page fault per 4 KB costs more than most fused kernels (a 2 MB gelu: 1.3 ms with fresh pages, 0.4 ms without, one
// thread). Blocks of KEEP_FROM bytes and more are kept by exact size. What is kept together with what is in use stays
// within the most that was ever in use at once, plus SLACK; the blocks unused longest go first.
#include "memory.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstdlib>
#include <list>
#include <mutex>
#include <unordered_map>

#include <pthread.h>
#include <sys/mman.h>

namespace torchglass {
namespace {

constexpr size_t KEEP_FROM = 64 << 10;
constexpr size_t SLACK = 32 << 20;
constexpr size_t PAGE = 4096;
constexpr size_t HUGE_PAGE = 2 << 20;

struct Block {
  void* data;
  size_t bytes;
};

class Pool final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t wanted) override {
    if (wanted < KEEP_FROM) return c10::GetDefaultCPUAllocator()->allocate(wanted);
    const size_t bytes = (wanted + PAGE - 1) / PAGE * PAGE;
    Block* block = take(bytes);
    if (block == nullptr) {
      try {
        block = fresh(bytes);
      } catch (...) {
        std::lock_guard<std::mutex> lock(mutex_);
        in_use_ -= bytes;
        throw;
      }
    }
    report(block->data, static_cast<int64_t>(bytes));
    return {block->data, block, &give_back, c10::Device(c10::DeviceType::CPU)};
  }

  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

  size_t release() {
    std::lock_guard<std::mutex> lock(mutex_);
    const size_t before = kept_;
    trim(0);
    return before;
  }

 private:
  using Blocks = std::list<Block*>;

  Block* take(size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    in_use_ += bytes;
    most_in_use_ = std::max(most_in_use_, in_use_);
    auto& free = by_size_[bytes];
    if (free.empty()) return nullptr;
    auto newest = free.back();
    free.pop_back();
    Block* block = *newest;
    by_age_.erase(newest);
    kept_ -= bytes;
    return block;
  }

  Block* fresh(size_t bytes) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      const size_t limit = allowance();
      trim(limit > in_use_ ? limit - in_use_ : 0);
    }
    void* data = nullptr;
    if (posix_memalign(&data, bytes >= HUGE_PAGE ? HUGE_PAGE : 64, bytes) != 0) {
      release();
      TORCH_CHECK(posix_memalign(&data, 64, bytes) == 0, "torchglass: no memory for ", bytes, " bytes");
    }
    if (bytes >= HUGE_PAGE) madvise(data, bytes, MADV_HUGEPAGE);
    return new Block{data, bytes};
  }

  static void give_back(void* context);

  // torch.profiler's memory view counts these blocks as it counts PyTorch's own.
  void report(void* data, int64_t bytes) {
    if (!c10::memoryProfilingEnabled()) return;
    c10::reportMemoryUsageToProfiler(data, bytes, in_use_, in_use_ + kept_, c10::Device(c10::DeviceType::CPU));
  }

  void keep(Block* block) {
    std::lock_guard<std::mutex> lock(mutex_);
    in_use_ -= block->bytes;
    by_age_.push_back(block);
    by_size_[block->bytes].push_back(std::prev(by_age_.end()));
    kept_ += block->bytes;
    const size_t limit = allowance();
    trim(limit > in_use_ ? limit - in_use_ : 0);
  }

  size_t allowance() const { return most_in_use_ + SLACK; }

  // Frees the blocks unused longest until at most `most` bytes are kept. The lock is held.
  void trim(size_t most) {
    while (kept_ > most && !by_age_.empty()) {
      Block* block = by_age_.front();
      auto& free = by_size_[block->bytes];
      free.remove(by_age_.begin());
      by_age_.pop_front();
      kept_ -= block->bytes;
      std::free(block->data);
      delete block;
    }
  }

  std::mutex mutex_;
  Blocks by_age_;                                                      // kept blocks, the one unused longest first
  std::unordered_map<size_t, std::list<Blocks::iterator>> by_size_;    // the same by size, the newest last
  size_t kept_ = 0, in_use_ = 0, most_in_use_ = 0;
};

Pool& pool() {
  static Pool* const made = [] {
    // a thread that allocates while another forks would leave the child a lock that nobody opens
    pthread_atfork([] { pool().lock(); }, [] { pool().unlock(); }, [] { pool().unlock(); });
    return new Pool;  // never destroyed: tensors may outlive everything
  }();
  return *made;
}

void Pool::give_back(void* context) {
  auto* block = static_cast<Block*>(context);
  pool().report(block->data, -static_cast<int64_t>(block->bytes));
  pool().keep(block);
}

PyObject* release_memory(PyObject*, PyObject*) { return PyLong_FromSize_t(pool().release()); }

PyMethodDef memory_functions[] = {
    {"release_memory", release_memory, METH_NOARGS, "release_memory() -> int: frees kept blocks, returns their bytes."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

at::Tensor empty_kept(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype) {
  return at::detail::empty_strided_generic(sizes, strides, &pool(), c10::DispatchKeySet(c10::DispatchKey::CPU), dtype);
}

int add_memory(PyObject* module) { return PyModule_AddFunctions(module, memory_functions); }

}  // namespace torchglass
