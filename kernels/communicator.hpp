#pragma once

#include <cstdint>
#include <span>

#include "kernels/device.hpp"
#include "kernels/ops.hpp"
#include "kernels/result.hpp"

namespace pagoda::kernels {

/// Connects one rank with the other ranks of its group: exchanges rows of floats in the order of each rank's stream.
/// The ranks of a stage compute each layer together (tensor parallel, Shoeybi et al. 2019). Each stage computes some of
/// the layers and passes its rows to the next stage: rank r to rank r (pipeline parallel, Huang et al. 2019). All ranks
/// of all stages run the same steps in the same order, and all ranks of a stage run the same collectives in each step.
/// Stages may run different steps at the same time. Sums have a fixed order of ranks, so all ranks get the same bits.
///
/// A collective takes part(), which the rank has filled. Collectives, send() and receive() are called only in steps.
/// Thread-safe: leave(); all other functions are called on the thread that issues ops.
class Communicator {
 public:
  virtual ~Communicator() = default;

  /// Returns the number of the rank in its stage, from 0, and the number of ranks in each stage.
  virtual int rank() const = 0;
  virtual int num_ranks() const = 0;
  /// Returns the number of the rank's stage, from 0, and the number of stages.
  virtual int stage() const = 0;
  virtual int num_stages() const = 0;

  /// Begins a step when all ranks of the stage have come to it. Steps are numbered from 1, and each is later than the
  /// step before. Errors: device_failed if another rank of the stage has left, or cannot compute the step.
  virtual Status begin_step(std::int64_t step) = 0;
  /// Fails the present step, which this rank cannot compute: collectives of the step end with an error on all ranks of
  /// the stage that have not finished them, and so does receive() in the next stage, unless this rank has sent its
  /// rows. The next step is not affected. May be called again in a step. May wait as send() does. An error of any
  /// function here that says that another rank has failed or left has already failed the step for this rank.
  virtual void fail_step() = 0;
  /// Leaves the group: from now on its collectives, send() and receive() fail on all ranks that need this rank, and on
  /// this rank. Waits of these ranks end. Rows that were sent before can still be received. Any thread.
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

  /// Passes rows [count] to the same rank of the next stage; `count` is at most what the group has room for. Not on the
  /// last stage; at most once in a step. Waits while the next stage has not taken the rows of the last but one step: a
  /// stage runs ahead of the next by at most two steps. Does nothing if the receiver has already failed in the step. A
  /// step in which nothing is computed sends nothing, and receives nothing.
  /// Errors: device_failed if the step has failed, or if this rank or the receiver has left.
  virtual Status send(const Ops& ops, Stream& stream, std::int64_t count, const float* rows) = 0;
  /// Waits for the rows [count] of the present step from the same rank of the previous stage, and copies them. Not on
  /// the first stage; at most once in a step. `count` is as in send(). Errors: device_failed if the step has failed
  /// here or in the previous stage, or if this rank or the sender has left.
  virtual Status receive(const Ops& ops, Stream& stream, std::int64_t count, float* rows) = 0;
};

}  // namespace pagoda::kernels
