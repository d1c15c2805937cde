#include "engine/layers/device_array.hpp"

#include <cstring>
#include <utility>

#include "kernels/ops.hpp"

namespace pagoda::layers {

Result<kernels::Buffer> copy_to_device(kernels::Device& device, std::span<const std::byte> bytes) {
  auto memory = device.allocate(bytes.size(), kernels::MemoryKind::device);
  if (!memory) return memory;
  if (device.shares_host_memory()) {
    std::memcpy(memory->data(), bytes.data(), bytes.size());
    return memory;
  }
  auto staging = device.allocate(bytes.size(), kernels::MemoryKind::host);
  if (!staging) return staging;
  auto stream = device.create_stream("load");
  if (!stream) return fail(std::move(stream.error()));
  std::memcpy(staging->data(), bytes.data(), bytes.size());
  Status copied;
  (*stream)->submit([&] {
    copied = device.ops().copy(**stream, {.from = staging->data(), .to = memory->data(), .bytes = bytes.size()});
  });
  (*stream)->synchronize();
  if (copied) copied = (*stream)->status();
  if (!copied) return fail(std::move(copied.error()));
  return memory;
}

}  // namespace pagoda::layers
