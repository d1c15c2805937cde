#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/models/model.hpp"
#include "engine/step/plan.hpp"
#include "kernels/device.hpp"

namespace pagoda::execution {

/// The KV memory of one device: the device pool and the host pool for swapped blocks. One block holds all layers
/// contiguously, so a move is one piece per block. Owned by the cache engine; the worker's model reads and writes
/// blocks that the plans give it.
class KvMemory {
 public:
  /// `host_pool`: memory for the host blocks that lies elsewhere; empty = the device's host memory.
  /// Errors: out_of_memory that says how much was asked and what to lower.
  static Result<std::shared_ptr<KvMemory>> create(std::shared_ptr<kernels::Device> device, std::int64_t block_bytes,
                                                  std::int32_t num_device_blocks, std::int32_t num_host_blocks,
                                                  kernels::Buffer host_pool = {});

  /// Takes the physical memory of the pools now rather than as blocks are first used, so that a pool that does not fit
  /// is known at once. A host pool that was brought stays as it is. Call before anything uses the blocks.
  /// `progress(done)`: the share of both pools. Errors: out_of_memory, names what to lower.
  Status touch(const std::function<void(double done)>& progress) const;

  std::byte* device_base() const { return device_pool_.as<std::byte>(); }
  std::int64_t block_bytes() const { return block_bytes_; }

  /// Issue the plan's moves: first swap-out and swap-in, then the copies. Call inside Stream::submit of the copy
  /// stream.
  Status issue_swaps(kernels::Stream& stream, const CachePlan& plan) const;
  Status issue_copies(kernels::Stream& stream, const CachePlan& plan) const;

 private:
  KvMemory() = default;
  Status move(kernels::Stream& stream, const std::vector<BlockMove>& moves, const kernels::Buffer& from,
              const kernels::Buffer& to) const;

  std::shared_ptr<kernels::Device> device_;
  std::int64_t block_bytes_ = 0;
  kernels::Buffer device_pool_;
  kernels::Buffer host_pool_;
  bool allocated_host_pool_ = false;
};

}  // namespace pagoda::execution
