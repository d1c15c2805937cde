#include "engine/layers/device_array.hpp"

#include <cstring>
#include <utility>

#include "kernels/ops.hpp"

namespace pagoda::layers {
namespace {

Status copy(kernels::Device& device, const void* from, void* to, std::size_t bytes) {
  auto stream = device.create_stream("load");
  if (!stream) return fail(std::move(stream.error()));
  Status copied;
  (*stream)->submit([&] { copied = device.ops().copy(**stream, {.from = from, .to = to, .bytes = bytes}); });
  (*stream)->synchronize();
  return copied ? (*stream)->status() : copied;
}

}  // namespace

Result<kernels::Buffer> fill_on_device(kernels::Device& device, std::size_t bytes,
                                       const std::function<void(std::byte* memory)>& fill) {
  auto memory = device.allocate(bytes, kernels::MemoryKind::device);
  if (!memory) return memory;
  if (device.shares_host_memory()) {
    fill(memory->as<std::byte>());
    return memory;
  }
  auto staging = device.allocate(bytes, kernels::MemoryKind::host);
  if (!staging) return staging;
  fill(staging->as<std::byte>());
  auto copied = copy(device, staging->data(), memory->data(), bytes);
  if (!copied) return fail(std::move(copied.error()));
  return memory;
}

Result<kernels::Buffer> copy_to_host(kernels::Device& device, const void* from, std::size_t bytes) {
  auto memory = device.allocate(bytes, kernels::MemoryKind::host);
  if (!memory) return memory;
  auto copied = copy(device, from, memory->data(), bytes);
  if (!copied) return fail(std::move(copied.error()));
  return memory;
}

Result<kernels::Buffer> copy_to_device(kernels::Device& device, std::span<const std::byte> bytes) {
  return fill_on_device(device, bytes.size(),
                        [&](std::byte* memory) { std::memcpy(memory, bytes.data(), bytes.size()); });
}

}  // namespace pagoda::layers
