// PyTorch's streams on a GPU: who has been given one, and waiting for all of them by events.
#include "cuda_streams.h"

#include "cuda_driver.h"

#include <algorithm>
#include <map>
#include <memory>

namespace torchglass {
namespace {

constexpr int POOLS = 4, STREAMS = 32;  // of PyTorch's streams, and in each: c10/cuda/CUDAStream.cpp

}  // namespace

bool is_captured(void* stream) {
  int capturing = 0;
  return driver().is_capturing(stream, &capturing) != 0 || capturing != 0;
}

Streams::Streams(c10::Device device) : device_(device) {
  all_.push_back(guard_.getDefaultStream(device));
  for (int pool = 0; pool < POOLS; ++pool) {
    auto& turn = pools_.emplace_back();
    for (int k = 0; k < STREAMS; ++k) turn.push_back(guard_.getNewStream(device, -pool));
    all_.insert(all_.end(), turn.begin(), turn.end());
    const auto before = std::count_if(turn.begin(), turn.end(), [&](const auto& one) { return one.id() < turn.front().id(); });
    others_ |= before > (pool == 0 ? 1 : 0);  // one is that which graphs are captured on
  }
  next_.resize(POOLS, 0);
}

bool Streams::others() {
  for (size_t pool = 0; pool < pools_.size() && !others_; ++pool) {
    others_ = guard_.getNewStream(device_, -static_cast<int>(pool)) != pools_[pool][next_[pool]];
    next_[pool] = (next_[pool] + 1) % STREAMS;
  }
  return others_;
}

void Streams::before(const c10::Stream& stream) const {
  for (const c10::Stream& other : all_) {
    void* const handle = guard_.getStreamNativeHandle(other);
    if (other == stream || is_captured(handle) || driver().is_idle(handle) == 0) continue;
    void* event = recorded(other);
    guard_.block(event, stream);
    guard_.destroyEvent(event, device_.index());
  }
}

void Streams::after(const c10::Stream& stream) const {
  void* event = recorded(stream);
  for (const c10::Stream& other : all_) {
    if (other != stream && !is_captured(guard_.getStreamNativeHandle(other))) guard_.block(event, other);
  }
  guard_.destroyEvent(event, device_.index());
}

void* Streams::recorded(const c10::Stream& stream) const {
  void* event = nullptr;
  guard_.record(&event, stream, device_.index(), c10::EventFlag::BACKEND_DEFAULT);
  return event;
}

Streams& streams_of(c10::Device device) {
  static std::map<c10::DeviceIndex, std::unique_ptr<Streams>> known;  // guarded by the GIL
  auto& streams = known[device.index()];
  if (!streams) streams = std::make_unique<Streams>(device);
  return *streams;
}

}  // namespace torchglass
