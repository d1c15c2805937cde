#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "kernels/device.hpp"

namespace pagoda::test {

/// A CPU device that counts the bytes allocated from it.
class CountingDevice final : public kernels::Device {
 public:
  kernels::DeviceKind kind() const override { return cpu_->kind(); }
  std::string description() const override { return cpu_->description(); }
  Result<kernels::Buffer> allocate(std::size_t bytes, kernels::MemoryKind kind) override {
    auto memory = cpu_->allocate(bytes, kind);
    if (!memory) return memory;
    auto held = std::make_shared<kernels::Buffer>(std::move(*memory));
    bytes_ += bytes;
    ++allocations_;
    peak_bytes_ = std::max(peak_bytes_.load(), bytes_.load());
    void* const data = held->data();
    return kernels::Buffer(data, bytes, [this, held](void*, std::size_t size) { bytes_ -= size; });
  }
  Result<std::unique_ptr<kernels::Stream>> create_stream(const std::string& name) override {
    return cpu_->create_stream(name);
  }
  const kernels::Ops& ops() const override { return cpu_->ops(); }
  std::size_t available_bytes(kernels::MemoryKind kind) const override { return cpu_->available_bytes(kind); }

  std::size_t bytes() const { return bytes_; }
  std::size_t peak_bytes() const { return peak_bytes_; }  ///< maximum of bytes() so far
  int allocations() const { return allocations_; }

 private:
  std::shared_ptr<kernels::Device> cpu_ = kernels::create_cpu_device({.num_threads = 2, .isa = ""}).value();
  std::atomic<std::size_t> bytes_ = 0;
  std::atomic<std::size_t> peak_bytes_ = 0;
  std::atomic<int> allocations_ = 0;
};

}  // namespace pagoda::test
