#pragma once

#include <cstddef>
#include <vector>

#include <cuda_runtime_api.h>

#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::kernels::cuda {

/// Pinned host memory and device memory of the same size.
struct Staged {
  std::byte* host = nullptr;
  std::byte* device = nullptr;
  std::size_t bytes = 0;
};

/// Staging memory that one thread takes in stream order and never returns explicitly. The memory is part of a segment.
/// A segment is used again after the event that follows its last use has passed. If no segment is free, take()
/// allocates a new segment, so that it never waits.
class StagingRing {
 public:
  StagingRing() = default;
  ~StagingRing();
  StagingRing(const StagingRing&) = delete;
  StagingRing& operator=(const StagingRing&) = delete;

  /// Returns memory of `bytes` bytes; both addresses are aligned to 256 bytes. All work that uses memory taken earlier
  /// must already be enqueued on `stream`.
  Result<Staged> take(std::size_t bytes, cudaStream_t stream);

  std::size_t num_segments() const { return segments_.size(); }

 private:
  struct Segment {
    Buffer host;
    Buffer device;
    cudaEvent_t left = nullptr;  ///< recorded when the ring moves on to another segment
    std::size_t used = 0;
  };

  Result<std::size_t> free_segment(std::size_t bytes);

  std::vector<Segment> segments_;
  std::size_t current_ = 0;
};

}  // namespace pagoda::kernels::cuda
