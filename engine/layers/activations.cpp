#include "engine/layers/activations.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace pagoda::layers {
namespace {

/// Returns the bytes of the narrow rows of Activations::normed.
std::int64_t narrow_bytes(const ActivationShape& shape, const ModelLimits& limits) {
  constexpr std::int64_t kElementBytes = 2;
  return limits.max_tokens * shape.hidden_size * kElementBytes;
}

}  // namespace

/// Offsets in floats from the start of the memory.
struct Activations::Layout {
  std::int64_t hidden = 0;
  std::int64_t residual = 0;
  std::int64_t logit_rows = 0;
  std::int64_t work = 0;
  std::int64_t total = 0;
};

Activations::Layout Activations::lay_out(const ActivationShape& shape, const ModelLimits& limits) {
  std::int64_t largest_work = 0;
  for (const auto& widths : shape.work_widths) {
    std::int64_t floats = 0;
    for (const std::int64_t width : widths) floats += area(limits.max_tokens, width);
    largest_work = std::max(largest_work, floats);
  }
  Layout layout;
  layout.residual = layout.hidden + area(limits.max_tokens, shape.hidden_size);
  layout.logit_rows = layout.residual + area(limits.max_tokens, shape.hidden_size);
  layout.work = layout.logit_rows + area(limits.max_logit_rows, shape.hidden_size);
  layout.total = layout.work + largest_work;
  return layout;
}

std::int64_t Activations::bytes(const ActivationShape& shape, const ModelLimits& limits, bool narrow_rows) {
  return lay_out(shape, limits).total * static_cast<std::int64_t>(sizeof(float)) +
         (narrow_rows ? narrow_bytes(shape, limits) : 0);
}

Result<Activations> Activations::create(kernels::Device& device, const ActivationShape& shape,
                                        const ModelLimits& limits) {
  const auto allocate = [&](std::int64_t size) {
    auto memory = device.allocate(static_cast<std::size_t>(size), kernels::MemoryKind::device);
    if (!memory) {
      memory.error().message = "activations of " + std::to_string(limits.max_tokens) + " tokens per step (" +
                               std::to_string(size) + " bytes): " + memory.error().message;
    }
    return memory;
  };
  auto memory = allocate(bytes(shape, limits, false));
  if (!memory) return fail(std::move(memory.error()));
  Result<kernels::Buffer> narrow;
  if (device.ops().supports_narrow_rows()) narrow = allocate(narrow_bytes(shape, limits));
  if (!narrow) return fail(std::move(narrow.error()));
  const Layout layout = lay_out(shape, limits);
  auto* base = memory->as<float>();
  Activations activations;
  activations.hidden = base + layout.hidden;
  activations.residual = base + layout.residual;
  activations.logit_rows = base + layout.logit_rows;
  activations.work_ = base + layout.work;
  activations.memory_ = std::move(*memory);
  activations.narrow_ = std::move(*narrow);
  activations.limits_ = limits;
  return activations;
}

Status Activations::check_fits(const ForwardBatch& batch) const {
  if (batch.num_tokens <= limits_.max_tokens) return {};
  return fail(ErrorCode::internal, "a step has " + std::to_string(batch.num_tokens) +
                                       " tokens, but the model has buffers for at most " +
                                       std::to_string(limits_.max_tokens));
}

Status Activations::check_logit_rows(std::int32_t num_rows) const {
  if (num_rows <= limits_.max_logit_rows) return {};
  return fail(ErrorCode::internal, "logits of " + std::to_string(num_rows) +
                                       " rows are needed, but the model has buffers for at most " +
                                       std::to_string(limits_.max_logit_rows));
}

}  // namespace pagoda::layers
