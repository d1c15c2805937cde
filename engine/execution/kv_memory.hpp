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

/// Memory for the pools of a KvMemory that is allocated elsewhere. The device allocates the empty ones.
struct KvPools {
  kernels::Buffer device;
  kernels::Buffer host;
  /// Memory of a PlanProgress, if the pools outlive the process. Only for devices that share host memory.
  kernels::Buffer progress;
  bool touch_host = false;  ///< whether KvMemory::touch touches the host pool too
};

/// The KV memory of one device: the device pool, and the host pool for swapped blocks. One block holds all layers
/// contiguously, so each block moves in one piece. The cache engine owns the memory. The worker's model reads and
/// writes the blocks that the plans give it.
///
/// Memory that outlives its process records the progress of plans. A process that replaces a killed one receives the
/// unfinished plans again, and executes the parts that are left. The parts of a plan (swap-out, swap-in, copies) each
/// read only memory that they do not write, so that an interrupted part can start again.
class KvMemory {
 public:
  /// Errors: out_of_memory, which states the size that was requested and the option to lower.
  static Result<std::shared_ptr<KvMemory>> create(std::shared_ptr<kernels::Device> device, std::int64_t block_bytes,
                                                  std::int32_t num_device_blocks, std::int32_t num_host_blocks,
                                                  KvPools pools = {});

  /// Takes the physical memory of the pools now, and not at the first use of each block, so that a pool that does not
  /// fit is known at once. A host pool from KvPools stays as it is unless touch_host is set. Call before any use of the
  /// blocks. `progress(done)` receives the share of both pools that is done. Errors: out_of_memory, which names the
  /// option to lower.
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
  /// Moves blocks for one part of a plan, unless the part is done already.
  Status move(kernels::Stream& stream, StepId plan, PlanProgress::Part part, const std::vector<BlockMove>& moves,
              const kernels::Buffer& from, const kernels::Buffer& to) const;

  std::shared_ptr<kernels::Device> device_;
  std::int64_t block_bytes_ = 0;
  KvPools pools_;
};

}  // namespace pagoda::execution
