#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/execution/plan_progress.hpp"
#include "engine/models/model.hpp"
#include "engine/step/plan.hpp"
#include "kernels/device.hpp"

namespace pagoda::execution {

/// Memory for the pools of a KvMemory that lies elsewhere; what is empty is the device's own.
struct KvPools {
  kernels::Buffer device;
  kernels::Buffer host;
  kernels::Buffer progress;  ///< a PlanProgress: the pools outlive the process. Only of devices that share host memory
  bool touch_host = false;   ///< KvMemory::touch takes the host pool too
};

/// The KV memory of one device: the device pool and the host pool for swapped blocks. One block holds all layers
/// contiguously, so a move is one piece per block. Owned by the cache engine; the worker's model reads and writes
/// blocks that the plans give it.
///
/// Memory that outlives its process says how far plans have come. Whoever takes the place of a process that was killed
/// is told the plans again that were not through, and does what is left of them: the parts of a plan (swap-out,
/// swap-in, copies) each read what they do not write, so that one that was broken off can be begun again.
class KvMemory {
 public:
  /// Errors: out_of_memory that says how much was asked and what to lower.
  static Result<std::shared_ptr<KvMemory>> create(std::shared_ptr<kernels::Device> device, std::int64_t block_bytes,
                                                  std::int32_t num_device_blocks, std::int32_t num_host_blocks,
                                                  KvPools pools = {});

  /// Takes the physical memory of the pools now rather than as blocks are first used, so that a pool that does not fit
  /// is known at once. A host pool that was brought stays as it is, unless KvPools says otherwise. Call before anything
  /// uses the blocks.
  /// `progress(done)`: the share of both pools. Errors: out_of_memory, names what to lower.
  Status touch(const std::function<void(double done)>& progress) const;

  std::byte* device_base() const { return pools_.device.as<std::byte>(); }
  std::int64_t block_bytes() const { return block_bytes_; }

  /// Issue the plan's moves: first swap-out and swap-in, then the copies. Call inside Stream::submit of the copy
  /// stream.
  Status issue_swaps(kernels::Stream& stream, const CachePlan& plan) const;
  Status issue_copies(kernels::Stream& stream, const CachePlan& plan) const;

 private:
  KvMemory() = default;
  PlanProgress* progress() const { return pools_.progress.as<PlanProgress>(); }
  /// `part`: of the plan.
  Status move(kernels::Stream& stream, StepId plan, PlanProgress::Part part, const std::vector<BlockMove>& moves,
              const kernels::Buffer& from, const kernels::Buffer& to) const;

  std::shared_ptr<kernels::Device> device_;
  std::int64_t block_bytes_ = 0;
  KvPools pools_;
};

}  // namespace pagoda::execution
