#include "engine/layers/activations.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace pagoda::layers {
namespace {

/// Offsets in floats from the start of the memory; each on a cache line.
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

Layout lay_out(const models::ModelConfig& config, const models::ModelLimits& limits) {
  const auto area = [](std::int64_t rows, std::int64_t width) {
    constexpr std::int64_t kLineFloats = 16;
    return (rows * width + kLineFloats - 1) / kLineFloats * kLineFloats;
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

}  // namespace

std::int64_t Activations::bytes(const models::ModelConfig& config, const models::ModelLimits& limits) {
  return lay_out(config, limits).total * static_cast<std::int64_t>(sizeof(float));
}

Result<Activations> Activations::create(kernels::Device& device, const models::ModelConfig& config,
                                        const models::ModelLimits& limits) {
  const std::int64_t size = bytes(config, limits);
  auto memory = device.allocate(static_cast<std::size_t>(size), kernels::MemoryKind::device);
  if (!memory) {
    Error error = std::move(memory.error());
    error.message = "activations of " + std::to_string(limits.max_tokens) + " tokens per step (" +
                    std::to_string(size) + " bytes): " + error.message;
    return fail(std::move(error));
  }
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
  activations.limits_ = limits;
  return activations;
}

Status Activations::admit(const models::ForwardBatch& batch) const {
  if (batch.num_tokens <= limits_.max_tokens && batch.num_logit_rows <= limits_.max_logit_rows) return {};
  return fail(ErrorCode::internal, "a step of " + std::to_string(batch.num_tokens) + " tokens and " +
                                       std::to_string(batch.num_logit_rows) + " logit rows is more than the " +
                                       std::to_string(limits_.max_tokens) + " and " +
                                       std::to_string(limits_.max_logit_rows) + " that the model was made for");
}

}  // namespace pagoda::layers
