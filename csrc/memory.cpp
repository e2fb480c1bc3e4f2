// Memory of generated graphs: blocks that are kept when a tensor dies and handed out again.
//
// glibc returns large blocks to the system on free, so every call of a compiled graph would meet fresh pages, and a
// page fault per 4 KB costs more than most fused kernels (a 2 MB gelu: 1.3 ms with fresh pages, 0.4 ms without, one
// thread). Blocks of KEEP_FROM bytes and more are kept by exact size. What is kept together with what is in use stays
// within the most that was in use at once lately, plus SLACK; the blocks unused longest go first. Lately is this epoch
// and the one before it, EPOCH allocations each: many steps of a model, so that what recurs in each is kept, and what
// one large call needed is given back once small ones go on.
//
// Tensors die on any thread, in destructors that may not throw: giving a block back allocates nothing. All that it may
// need is made when the block is.
#include "memory.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstdlib>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <pthread.h>
#include <sys/mman.h>

namespace torchglass {
namespace {

constexpr size_t KEEP_FROM = 64 << 10;
constexpr size_t SLACK = 32 << 20;
constexpr size_t EPOCH = 1 << 14;  // a training step of a model of 1.5 GB allocates some thousand times
constexpr size_t PAGE = 4096;
constexpr size_t HUGE_PAGE = 2 << 20;

struct Block;
using Blocks = std::list<Block>;

// The blocks of one size.
struct Size {
  size_t bytes = 0;
  size_t blocks = 0;                     // in use and kept
  std::vector<Blocks::iterator> kept{};  // the newest last, with room for all of them
};

// A block moves between the lists of those in use and those kept as the node that it was made as.
struct Block {
  void* data;
  Size* size;
  Blocks::iterator place{};
};

// What the profiler is told.
struct Totals {
  size_t in_use, kept;
};

class Pool final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t wanted) override {
    if (wanted < KEEP_FROM) return c10::GetDefaultCPUAllocator()->allocate(wanted);
    const size_t bytes = (wanted + PAGE - 1) / PAGE * PAGE;
    Totals totals{};
    Block* block = take(bytes, totals);
    if (block == nullptr) block = make(bytes, totals);
    c10::DataPtr data(block->data, block, &give_back, c10::Device(c10::DeviceType::CPU));
    report(block->data, static_cast<int64_t>(bytes), totals);
    return data;
  }

  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  using Lock = std::lock_guard<std::mutex>;
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

  size_t release() {
    const Lock lock(mutex_);
    const size_t before = totals_.kept;
    trim(0);
    return before;
  }

 private:
  // A kept block of this size, null if there is none.
  Block* take(size_t bytes, Totals& totals) {
    const Lock lock(mutex_);
    const auto found = sizes_.find(bytes);
    if (found == sizes_.end() || found->second.kept.empty()) return nullptr;
    const auto newest = found->second.kept.back();
    found->second.kept.pop_back();
    in_use_.splice(in_use_.end(), kept_, newest);
    totals_.kept -= bytes;
    totals = count(bytes);
    return &*newest;
  }

  // A new block, after room is made for it.
  Block* make(size_t bytes, Totals& totals) {
    {
      const Lock lock(mutex_);
      trim_to_allowance(bytes);
    }
    std::unique_ptr<void, decltype(&std::free)> data(map(bytes), &std::free);
    Blocks made;
    made.push_back({data.get(), nullptr});
    made.back().place = made.begin();
    const Lock lock(mutex_);
    Size& size = sizes_.try_emplace(bytes, Size{bytes}).first->second;
    size.kept.reserve(size.blocks + 1);
    ++size.blocks;
    made.back().size = &size;
    in_use_.splice(in_use_.end(), made);
    data.release();
    totals = count(bytes);
    return &in_use_.back();
  }

  void* map(size_t bytes) {
    void* data = nullptr;
    if (posix_memalign(&data, bytes >= HUGE_PAGE ? HUGE_PAGE : 64, bytes) != 0) {
      release();
      // no stream: where libstdc++ is linked into this library, its streams are not those of PyTorch's
      TORCH_CHECK(posix_memalign(&data, 64, bytes) == 0, "torchglass: no memory for " + std::to_string(bytes) + " bytes");
    }
    if (bytes >= HUGE_PAGE) madvise(data, bytes, MADV_HUGEPAGE);
    return data;
  }

  // One more allocation. The lock is held.
  Totals count(size_t bytes) {
    if (++allocations_ % EPOCH == 0) {
      most_before_ = most_;
      most_ = totals_.in_use;
    }
    totals_.in_use += bytes;
    most_ = std::max(most_, totals_.in_use);
    return totals_;
  }

  static void give_back(void* context);

  Totals keep(Block* block) {
    const Lock lock(mutex_);
    kept_.splice(kept_.end(), in_use_, block->place);
    block->size->kept.push_back(block->place);  // for which there is room
    totals_.in_use -= block->size->bytes;
    totals_.kept += block->size->bytes;
    const Totals now = totals_;
    trim_to_allowance(0);
    return now;
  }

  // torch.profiler's memory view counts these blocks as it counts PyTorch's own.
  static void report(void* data, int64_t bytes, const Totals& totals) {
    if (!c10::memoryProfilingEnabled()) return;
    const c10::Device cpu(c10::DeviceType::CPU);
    c10::reportMemoryUsageToProfiler(data, bytes, totals.in_use, totals.in_use + totals.kept, cpu);
  }

  // With `more` bytes that will be in use soon. The lock is held.
  void trim_to_allowance(size_t more) {
    const size_t used = totals_.in_use + more, most = std::max({most_, most_before_, used}) + SLACK;
    trim(most - used);
  }

  // Frees the blocks unused longest until at most `most` bytes are kept. The lock is held.
  void trim(size_t most) {
    while (totals_.kept > most) {
      const auto oldest = kept_.begin();
      Size& size = *oldest->size;
      size.kept.erase(size.kept.begin());  // the oldest of all is the oldest of its size
      totals_.kept -= size.bytes;
      std::free(oldest->data);
      kept_.erase(oldest);
      if (--size.blocks == 0) sizes_.erase(size.bytes);
    }
  }

  std::mutex mutex_;
  Blocks in_use_, kept_;  // kept: the one unused longest first
  std::unordered_map<size_t, Size> sizes_;
  Totals totals_{0, 0};
  size_t most_ = 0, most_before_ = 0;  // in use at once, in this epoch and the one before
  size_t allocations_ = 0;
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
  unraising([&] {
    auto* block = static_cast<Block*>(context);
    void* const data = block->data;
    const auto bytes = static_cast<int64_t>(block->size->bytes);
    report(data, -bytes, pool().keep(block));
  });
}

PyObject* release_memory(PyObject*, PyObject*) { return PyLong_FromSize_t(pool().release()); }

PyMethodDef memory_functions[] = {
    {"release_memory", method<release_memory>(), METH_NOARGS, "release_memory() -> int: frees kept blocks, returns their bytes."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

at::Tensor empty_kept(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype) {
  return at::detail::empty_strided_generic(sizes, strides, &pool(), c10::DispatchKeySet(c10::DispatchKey::CPU), dtype);
}

int add_memory(PyObject* module) { return PyModule_AddFunctions(module, memory_functions); }

}  // namespace torchglass
