#include "engine/layers/device_array.hpp"

#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels/ops.hpp"

namespace pagoda::layers {

Result<kernels::Buffer> fill_on_device(kernels::Device& device, std::size_t bytes,
                                       const std::function<void(std::byte*)>& fill) {
  auto staging = device.allocate(bytes, kernels::MemoryKind::host);
  if (!staging) return fail(std::move(staging.error()));
  auto memory = device.allocate(bytes, kernels::MemoryKind::device);
  if (!memory) return fail(std::move(memory.error()));
  auto stream = device.create_stream("load");
  if (!stream) return fail(std::move(stream.error()));

  fill(staging->as<std::byte>());
  constexpr std::int32_t kWhole = 0;  // the array is one block
  Status copied;
  (*stream)->submit([&] {
    copied = device.ops().move_blocks(**stream, {.from_base = staging->as<std::byte>(),
                                                 .to_base = memory->as<std::byte>(),
                                                 .block_bytes = static_cast<std::int64_t>(bytes),
                                                 .from = {&kWhole, 1},
                                                 .to = {&kWhole, 1}});
  });
  (*stream)->synchronize();
  if (!copied) return fail(std::move(copied.error()));
  return memory;
}

Result<kernels::Buffer> copy_to_device(kernels::Device& device, std::span<const std::byte> bytes) {
  return fill_on_device(device, bytes.size(),
                        [&](std::byte* target) { std::memcpy(target, bytes.data(), bytes.size()); });
}

}  // namespace pagoda::layers
