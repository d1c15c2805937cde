#include "engine/execution/step_memory.hpp"

#include <algorithm>
#include <utility>

namespace pagoda::execution {
namespace {

constexpr std::size_t kTopBytes = sizeof(std::int32_t) + sizeof(float);

std::size_t product(std::int64_t a, std::int64_t b) {
  return static_cast<std::size_t>(a) * static_cast<std::size_t>(b);
}

}  // namespace

std::size_t ResultShape::bytes() const {
  return product(num_samples + num_reports + num_drafts, sizeof(kernels::SampleOutput)) +
         (product(num_samples, max_sample_top) + product(num_reports, max_report_top)) * kTopBytes;
}

StepResults::StepResults(std::byte* base, const ResultShape& shape)
    : samples(reinterpret_cast<kernels::SampleOutput*>(base)),
      reports(samples + shape.num_samples),
      drafts(reports + shape.num_reports),
      sample_top_tokens(reinterpret_cast<std::int32_t*>(drafts + shape.num_drafts)),
      sample_top_logprobs(
          reinterpret_cast<float*>(sample_top_tokens + product(shape.num_samples, shape.max_sample_top))),
      report_top_tokens(
          reinterpret_cast<std::int32_t*>(sample_top_logprobs + product(shape.num_samples, shape.max_sample_top))),
      report_top_logprobs(
          reinterpret_cast<float*>(report_top_tokens + product(shape.num_reports, shape.max_report_top))) {}

Result<std::unique_ptr<StepMemory>> StepMemory::create(kernels::Device& device, std::size_t input_bytes) {
  std::unique_ptr<StepMemory> memory(new StepMemory(device));
  auto inputs = device.allocate(input_bytes, kernels::MemoryKind::host);
  if (!inputs) return fail(std::move(inputs.error()));
  memory->inputs_ = std::move(*inputs);
  return memory;
}

Status StepMemory::grow(kernels::Buffer& buffer, std::size_t bytes, kernels::MemoryKind kind) {
  if (bytes <= buffer.bytes()) return {};
  constexpr std::size_t kMinBytes = std::size_t{16} << 10;
  auto larger = device_.allocate(std::max({bytes, 2 * buffer.bytes(), kMinBytes}), kind);
  if (!larger) return fail(std::move(larger.error()));
  buffer = std::move(*larger);
  return {};
}

Result<std::int32_t*> StepMemory::tokens(std::size_t count) {
  if (Status status = grow(tokens_, count * sizeof(std::int32_t), kernels::MemoryKind::host); !status) {
    return fail(std::move(status.error()));
  }
  return tokens_.as<std::int32_t>();
}

Status StepMemory::reserve_results(std::size_t bytes) {
  Status status = grow(results_, bytes, kernels::MemoryKind::host);
  if (status && !device_.shares_host_memory()) status = grow(device_results_, bytes, kernels::MemoryKind::device);
  return status;
}

Status StepMemory::download_results(kernels::Stream& stream, std::size_t bytes) const {
  if (device_.shares_host_memory() || bytes == 0) return {};
  return device_.ops().copy(stream, {.from = results_on_device(), .to = results(), .bytes = bytes});
}

void StepMemoryPool::put(std::unique_ptr<StepMemory> memory) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(memory));
}

std::unique_ptr<StepMemory> StepMemoryPool::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return nullptr;
  auto memory = std::move(free_.back());
  free_.pop_back();
  return memory;
}

}  // namespace pagoda::execution
