#include "engine/layers/positions.hpp"

#include <bit>
#include <cmath>
#include <span>
#include <utility>

#include "engine/layers/device_array.hpp"

namespace pagoda::layers {

std::vector<float> alibi_slopes(std::int64_t num_heads) {
  const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(num_heads)));
  std::vector<float> slopes;
  for (std::int64_t i = 1; i <= power; ++i) {
    slopes.push_back(static_cast<float>(std::exp2(-8.0 * static_cast<double>(i) / static_cast<double>(power))));
  }
  for (std::int64_t i = 1; std::ssize(slopes) < num_heads; i += 2) {
    slopes.push_back(static_cast<float>(std::exp2(-4.0 * static_cast<double>(i) / static_cast<double>(power))));
  }
  return slopes;
}

std::int64_t PositionTables::bytes(const PositionShape& shape, std::int64_t max_model_len) {
  constexpr auto kFloatBytes = static_cast<std::int64_t>(sizeof(float));
  switch (shape.kind) {
    case PositionKind::rotary:
      return max_model_len * shape.rotary.rotary_dim * kFloatBytes;
    case PositionKind::alibi:
      return shape.num_heads * kFloatBytes;
    case PositionKind::learned:
      return 0;
  }
  return 0;
}

Result<PositionTables> PositionTables::create(kernels::Device& device, const PositionShape& shape,
                                              std::int64_t max_model_len) {
  PositionTables tables;
  const auto upload = [&](const std::vector<float>& values, kernels::Buffer& target) -> Status {
    auto buffer = copy_to_device(device, std::as_bytes(std::span(values)));
    if (!buffer) return fail(std::move(buffer.error()));
    target = std::move(*buffer);
    return {};
  };
  Status status;
  if (shape.kind == PositionKind::rotary) {
    tables.rotary_dim_ = shape.rotary.rotary_dim;
    tables.interleaved_ = shape.rotary.interleaved;
    status = upload(rotary_cos_sin(max_model_len, shape.rotary), tables.cos_sin_);
  } else if (shape.kind == PositionKind::alibi) {
    const std::vector<float> all = layers::alibi_slopes(shape.num_heads);
    const auto first = all.begin() + shape.first_head;
    status = upload({first, shape.heads_of_rank == 0 ? all.end() : first + shape.heads_of_rank}, tables.alibi_slopes_);
  }
  if (!status) return fail(std::move(status.error()));
  return tables;
}

}  // namespace pagoda::layers
