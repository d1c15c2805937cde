#include "engine/layers/rotary.hpp"

#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/ops.hpp"

namespace pagoda::layers {
namespace {

/// 1 / theta^(2i / rotary_dim) in float32, as transformers computes it.
std::vector<float> inverse_frequencies(std::int64_t rotary_dim, double theta) {
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < rotary_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(rotary_dim);
    frequencies.push_back(1.0F / std::pow(static_cast<float>(theta), exponent));
  }
  return frequencies;
}

}  // namespace

std::vector<float> rotary_cos_sin(std::int64_t max_position, std::int64_t rotary_dim, double theta) {
  const auto frequencies = inverse_frequencies(rotary_dim, theta);
  const std::int64_t half = rotary_dim / 2;
  std::vector<float> table(static_cast<std::size_t>(max_position * rotary_dim));
  for (std::int64_t position = 0; position < max_position; ++position) {
    float* row = table.data() + position * rotary_dim;
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<float>(position) * frequencies[static_cast<std::size_t>(i)];
      row[i] = static_cast<float>(std::cos(angle));
      row[half + i] = static_cast<float>(std::sin(angle));
    }
  }
  return table;
}

Result<RotaryTable> RotaryTable::create(kernels::Device& device, std::int64_t max_position, std::int64_t rotary_dim,
                                        double theta) {
  const auto values = rotary_cos_sin(max_position, rotary_dim, theta);
  const std::size_t bytes = values.size() * sizeof(float);
  auto staging = device.allocate(bytes, kernels::MemoryKind::host);
  if (!staging) return fail(std::move(staging.error()));
  auto memory = device.allocate(bytes, kernels::MemoryKind::device);
  if (!memory) return fail(std::move(memory.error()));
  auto stream = device.create_stream("load");
  if (!stream) return fail(std::move(stream.error()));

  std::memcpy(staging->data(), values.data(), bytes);
  Status copied;
  (*stream)->submit([&] {
    constexpr std::int32_t kFirst = 0;
    copied = device.ops().move_blocks(**stream, {.from_base = staging->as<std::byte>(),
                                                 .to_base = memory->as<std::byte>(),
                                                 .block_bytes = static_cast<std::int64_t>(bytes),
                                                 .from = {&kFirst, 1},
                                                 .to = {&kFirst, 1}});
  });
  (*stream)->synchronize();
  if (!copied) return fail(std::move(copied.error()));

  RotaryTable table;
  table.memory_ = std::move(*memory);
  table.rotary_dim_ = rotary_dim;
  return table;
}

}  // namespace pagoda::layers
