#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "engine/layers/forward_batch.hpp"
#include "engine/layers/linear_inputs.hpp"
#include "engine/layers/residual_observer.hpp"
#include "kernels/communicator.hpp"
#include "kernels/ops.hpp"
#include "kernels/result.hpp"

namespace pagoda::layers {

/// One run of a model over a batch: all that a layer needs to issue its ops. The pass keeps the first error and issues
/// no op after it, so a model runs its layers one after another and checks status() once.
class ForwardPass {
 public:
  using Ops = kernels::Ops;

  /// The arguments must live until the run has ended. `ranks`: connects the ranks that compute the model together; null
  /// if this is the only one.
  ForwardPass(const Ops& ops, kernels::Stream& stream, const ForwardBatch& batch, const KvCache& cache,
              kernels::Communicator* ranks = nullptr)
      : ops_(ops), stream_(stream), batch_(batch), cache_(cache), ranks_(ranks) {}

  /// Issues one op, for example run(&Ops::rms_norm, {...}).
  template <class Params>
  void run(Status (Ops::*op)(kernels::Stream&, const Params&) const, const std::type_identity_t<Params>& params) {
    if (status_) status_ = (ops_.*op)(stream_, params);
  }

  /// Passes the input of `modules` to the batch's LinearInputs, if there is one.
  void show_input(std::span<const LinearModule> modules, const Rows& x, std::int64_t num_rows,
                  std::int64_t in_features) {
    if (batch_.linear_inputs == nullptr || modules.empty() || !status_) return;
    status_ = batch_.linear_inputs->see(stream_, modules, x, num_rows, in_features);
  }

  /// Passes the input of a layer to the batch's ResidualObserver, if there is one.
  void show_residual(std::int64_t layer, const float* rows) {
    if (batch_.residual_observer == nullptr || !status_) return;
    status_ = batch_.residual_observer->see(stream_, batch_, layer, rows);
  }

  /// Calls compute(part, false) to write `count` floats, this rank's part of a sum, to `part`. Writes the sum over all
  /// ranks to out, or adds it with `accumulate`. A rank that is alone calls compute(out, accumulate).
  template <class Compute>
  void sum_over_ranks(std::int64_t count, float* out, bool accumulate, const Compute& compute) {
    if (!shares_layers()) return compute(out, accumulate);
    compute(ranks_->part(count), false);
    if (status_) status_ = ranks_->all_reduce(ops_, stream_, count, out, accumulate);
  }

  /// Calls compute(part) to write `num_rows` rows to `part`: this rank's columns, as many as `widths` has for it.
  /// Writes the columns of all ranks side by side to out. A rank that is alone calls compute(out).
  template <class Compute>
  void gather_from_ranks(std::int64_t num_rows, std::span<const std::int64_t> widths, float* out,
                         const Compute& compute) {
    if (!shares_layers()) return compute(out);
    compute(ranks_->part(num_rows * widths[static_cast<std::size_t>(ranks_->rank())]));
    if (status_) status_ = ranks_->all_gather(ops_, stream_, num_rows, widths, out);
  }

  /// Passes `count` floats to the next stage, or receives them from the one before.
  void send(std::int64_t count, const float* rows) {
    if (status_) status_ = ranks_->send(ops_, stream_, count, rows);
  }
  void receive(std::int64_t count, float* rows) {
    if (status_) status_ = ranks_->receive(ops_, stream_, count, rows);
  }

  const ForwardBatch& batch() const { return batch_; }
  const KvCache& cache() const { return cache_; }
  std::int64_t num_tokens() const { return batch_.num_tokens; }
  bool supports_narrow_rows() const { return ops_.supports_narrow_rows(); }
  const Status& status() const { return status_; }

 private:
  bool shares_layers() const { return ranks_ != nullptr && ranks_->num_ranks() > 1; }

  const Ops& ops_;
  kernels::Stream& stream_;
  const ForwardBatch& batch_;
  const KvCache& cache_;
  kernels::Communicator* ranks_;
  Status status_;
};

}  // namespace pagoda::layers
