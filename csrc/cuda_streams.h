// PyTorch's streams on a GPU, and how one of them and all others wait for each other.
#pragma once

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <vector>

namespace torchglass {

// Whether a stream is captured, which asking it for anything else would end.
bool is_captured(void* stream);

// PyTorch's streams on a GPU. Its pools, one for each priority, hand them out in turn, so that the next one tells whether
// anybody else has been given one: programs with a single stream need not wait for any.
class Streams {
 public:
  explicit Streams(c10::Device device);

  // Whether somebody else has one.
  bool others();

  // `stream` waits for the work of all others.
  void before(const c10::Stream& stream) const;

  // All others wait for the work of `stream`, those that have nothing to do now as well.
  void after(const c10::Stream& stream) const;

 private:
  void* recorded(const c10::Stream& stream) const;

  c10::Device device_;
  c10::impl::VirtualGuardImpl guard_{c10::DeviceType::CUDA};
  std::vector<c10::Stream> all_;
  std::vector<std::vector<c10::Stream>> pools_;
  std::vector<size_t> next_;
  bool others_ = false;
};

Streams& streams_of(c10::Device device);

}  // namespace torchglass
