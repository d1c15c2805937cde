#pragma once

#include <cstdint>
#include <span>

#include "kernels/device.hpp"
#include "kernels/ops.hpp"
#include "kernels/result.hpp"

namespace pagoda::kernels {

/// Connects one rank with the other ranks of its group, which compute each layer together (tensor parallel, Shoeybi et
/// al. 2019): exchanges rows of floats in the order of each rank's stream. All ranks run the same steps in the same
/// order, and in each step the same collectives. Sums have a fixed order of ranks, so all ranks get the same bits.
///
/// A collective takes part(), which the rank has filled. There are collectives only in steps. Thread-safe: leave(); all
/// else is called on the thread that issues ops.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int num_ranks() const = 0;

  /// Begins the collectives of a step, when all ranks have come to it. Steps are numbered from 1. Errors:
  /// device_failed if another rank has left, or cannot compute the step.
  virtual Status begin_step(std::int64_t step) = 0;
  /// Ends the collectives of the present step with an error, on all ranks that have not finished them: this rank cannot
  /// compute it. The next step is not affected.
  virtual void fail_step() = 0;
  /// Leaves the group: from now on its collectives fail, those of this rank as well. Any thread.
  virtual void leave() = 0;

  /// Returns memory for this rank's part of the next collective: `count` floats, at most as many as the group has room
  /// for.
  virtual float* part(std::int64_t count) = 0;

  /// out[i] = sum over the ranks of part[i], for i < count; with `accumulate` out[i] += this sum. Errors: as
  /// begin_step.
  virtual Status all_reduce(const Ops& ops, Stream& stream, std::int64_t count, float* out, bool accumulate) = 0;
  /// Puts the parts side by side: part of rank r [num_rows, widths[r]], out [num_rows, sum of widths]. Errors: as
  /// begin_step.
  virtual Status all_gather(const Ops& ops, Stream& stream, std::int64_t num_rows, std::span<const std::int64_t> widths,
                            float* out) = 0;
};

}  // namespace pagoda::kernels
