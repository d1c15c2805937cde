#include "engine/calibration/input_products.hpp"

#include <algorithm>
#include <utility>

#include "kernels/ops.hpp"

namespace pagoda::calibration {
namespace {

Status make_room(kernels::Device& device, kernels::Buffer& buffer, std::int64_t floats) {
  const auto bytes = static_cast<std::size_t>(floats) * sizeof(float);
  if (buffer.bytes() >= bytes) return {};
  auto memory = device.allocate(bytes, kernels::MemoryKind::host);
  if (!memory) return fail(std::move(memory.error()));
  buffer = std::move(*memory);
  return {};
}

}  // namespace

Status InputProducts::collect(std::size_t first, std::size_t last) {
  PAGODA_ASSERT(first <= last && last <= inputs_.size(), "inputs that have been seen");
  products_.clear();
  first_ = first;
  for (std::size_t i = first; i < last; ++i) {
    auto product = device_->allocate(static_cast<std::size_t>(inputs_[i].product_bytes()), kernels::MemoryKind::host);
    if (!product) return fail(std::move(product.error()));
    products_.push_back(std::move(*product));
  }
  return {};
}

Status InputProducts::see(kernels::Stream& stream, std::span<const layers::LinearModule> modules, const layers::Rows& x,
                          std::int64_t num_rows, std::int64_t in_features) {
  const auto [place, is_new] = places_.try_emplace(modules.front().name, inputs_.size());
  if (is_new) inputs_.push_back({{modules.begin(), modules.end()}, in_features});
  const std::size_t input = place->second;
  if (input < first_ || input - first_ >= products_.size()) return {};
  if (Status status = transpose(stream, x, num_rows, in_features); !status) return status;
  const kernels::WeightMatrix columns{transposed_.data(), DType::f32, in_features, num_rows};
  return device_->ops().linear(stream, {.x = transposed_.as<float>(),
                                        .num_tokens = in_features,
                                        .in = num_rows,
                                        .weights = {&columns, 1},
                                        .biases = {},
                                        .out = products_[input - first_].as<float>(),
                                        .out_stride = in_features,
                                        .accumulate = true});
}

Status InputProducts::transpose(kernels::Stream& stream, const layers::Rows& x, std::int64_t num_rows,
                                std::int64_t in_features) {
  constexpr std::int64_t kTile = 16;
  const std::int64_t count = num_rows * in_features;
  if (Status status = make_room(*device_, transposed_, count); !status) return status;
  const float* from = x.floats;
  if (from == nullptr) {
    if (Status status = make_room(*device_, rows_, count); !status) return status;
    from = rows_.as<float>();
    Status status = device_->ops().convert(stream, {.from = x.narrow.data,
                                                    .from_dtype = x.narrow.dtype,
                                                    .to = rows_.data(),
                                                    .to_dtype = DType::f32,
                                                    .count = count});
    if (!status) return status;
  }
  float* const to = transposed_.as<float>();
  return device_->ops().host_work(stream,
                                  {.num_tasks = (in_features + kTile - 1) / kTile, .run = [=](std::int64_t tile) {
                                     const std::int64_t end = std::min(in_features, (tile + 1) * kTile);
                                     for (std::int64_t row = 0; row < num_rows; ++row) {
                                       for (std::int64_t k = tile * kTile; k < end; ++k)
                                         to[k * num_rows + row] = from[row * in_features + k];
                                     }
                                   }});
}

}  // namespace pagoda::calibration
