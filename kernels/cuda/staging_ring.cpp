#include "kernels/cuda/staging_ring.hpp"

#include <algorithm>
#include <utility>

#include "kernels/cuda/cuda_check.hpp"
#include "kernels/cuda/cuda_memory.hpp"

namespace pagoda::kernels::cuda {
namespace {

constexpr std::size_t kSegmentBytes = std::size_t{1} << 20;
constexpr std::size_t kAlignment = 256;

}  // namespace

StagingRing::~StagingRing() {
  for (const Segment& segment : segments_) cudaEventDestroy(segment.left);
}

Result<Staged> StagingRing::take(std::size_t bytes, cudaStream_t stream) {
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (segments_.empty() || segments_[current_].used + rounded > segments_[current_].host.bytes()) {
    if (!segments_.empty()) {
      const Status left = check(cudaEventRecord(segments_[current_].left, stream), "cudaEventRecord");
      if (!left) return fail(left.error());
    }
    const auto next = free_segment(rounded);
    if (!next) return fail(next.error());
    current_ = *next;
    segments_[current_].used = 0;
  }
  Segment& segment = segments_[current_];
  const Staged staged{segment.host.as<std::byte>() + segment.used, segment.device.as<std::byte>() + segment.used,
                      bytes};
  segment.used += rounded;
  return staged;
}

Result<std::size_t> StagingRing::free_segment(std::size_t bytes) {
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    if (segments_[i].host.bytes() >= bytes && cudaEventQuery(segments_[i].left) == cudaSuccess) return i;
  }
  Segment segment;
  const std::size_t segment_bytes = std::max(kSegmentBytes, bytes);
  for (const MemoryKind kind : {MemoryKind::host, MemoryKind::device}) {
    auto buffer = allocate(segment_bytes, kind);
    if (!buffer) return fail(buffer.error());
    (kind == MemoryKind::host ? segment.host : segment.device) = std::move(*buffer);
  }
  const Status created =
      check(cudaEventCreateWithFlags(&segment.left, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  if (!created) return fail(created.error());
  segments_.push_back(std::move(segment));
  return segments_.size() - 1;
}

}  // namespace pagoda::kernels::cuda
