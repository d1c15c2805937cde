#include "engine/layers/activations.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace pagoda::layers {
namespace {

/// Offsets in floats from the start of the memory; each a multiple of 256 bytes, which matrix products on a GPU like
/// best.
struct Layout {
  std::int64_t hidden = 0;
  std::int64_t residual = 0;
  std::int64_t qkv = 0;
  std::int64_t attention = 0;
  std::int64_t gate_up = 0;
  std::int64_t activated = 0;
  std::int64_t logit_rows = 0;
  std::int64_t total = 0;
};

Layout lay_out(const models::ModelConfig& config, const ModelLimits& limits) {
  const auto area = [](std::int64_t rows, std::int64_t width) {
    constexpr std::int64_t kAlignedFloats = 64;
    return (rows * width + kAlignedFloats - 1) / kAlignedFloats * kAlignedFloats;
  };
  const std::int64_t tokens = limits.max_tokens;
  Layout layout;
  layout.residual = layout.hidden + area(tokens, config.hidden_size);
  layout.logit_rows = layout.residual + area(tokens, config.hidden_size);
  layout.qkv = layout.gate_up = layout.logit_rows + area(limits.max_logit_rows, config.hidden_size);
  layout.attention = layout.qkv + area(tokens, (config.num_heads + 2 * config.num_kv_heads) * config.head_dim);
  layout.activated = layout.gate_up + area(tokens, (config.gated_mlp ? 2 : 1) * config.intermediate_size);
  layout.total = std::max(layout.attention + area(tokens, config.num_heads * config.head_dim),
                          layout.activated + (config.gated_mlp ? area(tokens, config.intermediate_size) : 0));
  return layout;
}

/// Of Activations::normed.
std::int64_t narrow_bytes(const models::ModelConfig& config, const ModelLimits& limits) {
  constexpr std::int64_t kElementBytes = 2;
  return limits.max_tokens * config.hidden_size * kElementBytes;
}

}  // namespace

std::int64_t Activations::bytes(const models::ModelConfig& config, const ModelLimits& limits, bool narrow_rows) {
  return lay_out(config, limits).total * static_cast<std::int64_t>(sizeof(float)) +
         (narrow_rows ? narrow_bytes(config, limits) : 0);
}

Result<Activations> Activations::create(kernels::Device& device, const models::ModelConfig& config,
                                        const ModelLimits& limits) {
  const auto allocate = [&](std::int64_t size) {
    auto memory = device.allocate(static_cast<std::size_t>(size), kernels::MemoryKind::device);
    if (!memory) {
      memory.error().message = "activations of " + std::to_string(limits.max_tokens) + " tokens per step (" +
                               std::to_string(size) + " bytes): " + memory.error().message;
    }
    return memory;
  };
  auto memory = allocate(bytes(config, limits, false));
  if (!memory) return fail(std::move(memory.error()));
  Result<kernels::Buffer> narrow;
  if (device.ops().takes_narrow_rows()) narrow = allocate(narrow_bytes(config, limits));
  if (!narrow) return fail(std::move(narrow.error()));
  const Layout layout = lay_out(config, limits);
  auto* base = memory->as<float>();
  Activations activations;
  activations.hidden = base + layout.hidden;
  activations.residual = base + layout.residual;
  activations.qkv = base + layout.qkv;
  activations.attention = base + layout.attention;
  activations.gate_up = base + layout.gate_up;
  activations.activated = base + layout.activated;
  activations.logit_rows = base + layout.logit_rows;
  activations.memory_ = std::move(*memory);
  activations.narrow_ = std::move(*narrow);
  activations.limits_ = limits;
  return activations;
}

Status Activations::admit(const ForwardBatch& batch) const {
  if (batch.num_tokens <= limits_.max_tokens && batch.num_logit_rows <= limits_.max_logit_rows) return {};
  return fail(ErrorCode::internal, "a step of " + std::to_string(batch.num_tokens) + " tokens and " +
                                       std::to_string(batch.num_logit_rows) + " logit rows is more than the " +
                                       std::to_string(limits_.max_tokens) + " and " +
                                       std::to_string(limits_.max_logit_rows) + " that the model was made for");
}

}  // namespace pagoda::layers
