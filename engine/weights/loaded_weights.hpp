#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/weights/weight_converter.hpp"
#include "engine/weights/weight_source.hpp"
#include "kernels/device.hpp"
#include "kernels/quantized.hpp"

namespace pagoda::weights {

/// What becomes of a checkpoint's weights when they are loaded.
struct WeightPolicy {
  std::optional<DType> dtype;                        ///< what all plain weights are converted to; none = as they lie
  std::optional<kernels::QuantizedFormat> quantize;  ///< of linear layers, see format_of; none = they stay plain
  /// Matrices that the checkpoint holds quantised are computed with as they are, where kernels can; else they are
  /// dequantised first.
  bool keep_quantized = true;
  /// Plain weights of linear layers are copied into the device's memory, whose huge pages are read faster than a mapped
  /// file's small ones.
  bool copy_linear = false;
  /// Integers of 2 and 3 bits are held in 4, and kInt4Weights are kPlainInt4Weights.
  bool on_gpu = false;

  /// The format of a linear layer [rows, columns]. The head has 8 bits: its errors go straight into the logits. Beside
  /// 4 bits it has 6 on a CPU, and so have the projections to values that several heads share, which are a few per cent
  /// of the weights, and every third layer's way down: measured, they give the most for their bytes
  /// (docs/benchmarks/quantisation.md).
  std::optional<kernels::QuantizedFormat> format_of(std::string_view module, std::int64_t rows,
                                                    std::int64_t columns) const;
  /// The format in which `tensor` is used as the checkpoint has it; none where it is not.
  std::optional<kernels::QuantizedFormat> kept_format(const WeightTensor& tensor) const;
  /// The 8-bit floats of a linear layer that are used as they are; null where they are not.
  const Float8Weights* kept_float8(const WeightTensor& tensor) const;
  /// The same of an embedding, whose columns must be in order; kept where linear layers are quantised anew, too.
  std::optional<kernels::QuantizedFormat> kept_table_format(const WeightTensor& tensor) const;
};

/// The policy of --dtype ("auto" or a DType) and --quantize ("auto", "none", "int8" or "int4"), which must be one of
/// these.
WeightPolicy weight_policy(const std::string& dtype, const std::string& quantize);

/// Told how much of the copies is made.
struct CopyProgress {
  std::function<void(double)> report = nullptr;  ///< the share that is made, 0 to 1; null = nobody is told
  std::int64_t expected_bytes = 0;               ///< of all copies (MeasuredWeights::copied_bytes)
};

/// The weights of a checkpoint as the policy wants them, in the host's memory. A converted or quantised copy is made
/// when a weight is first asked for and kept, so that another model over the same source shares it. Thread-safe.
class LoadedWeights final : public WeightSource {
 public:
  /// `stored` must outlive this. `device`: converts and quantises; one that shares the host's memory. `kept`: has the
  /// copies that are made, all of this checkpoint and this policy; null = they are in the device's memory. `progress`
  /// hears of each copy on the thread that asked for it.
  LoadedWeights(const WeightSource& stored, WeightPolicy policy, std::shared_ptr<kernels::Device> device,
                std::shared_ptr<KeptCopies> kept = nullptr, CopyProgress progress = {})
      : stored_(stored),
        policy_(std::move(policy)),
        converter_(std::move(device), std::move(kept)),
        progress_(std::move(progress)) {}

  /// More errors: out_of_memory; bad_config when a value does not fit the dtype.
  Result<WeightTensor> tensor(std::string_view name, const std::vector<std::int64_t>& shape) const override;
  bool contains(std::string_view name) const override { return stored_.contains(name); }
  bool holds_derived(std::string_view module) const override { return stored_.holds_derived(module); }
  /// More errors: out_of_memory; bad_file when a weight is not finite.
  Result<LinearWeight> linear(std::string_view module, std::int64_t rows, std::int64_t columns) const override;
  Result<LinearWeight> embedding(std::string_view module, std::int64_t rows, std::int64_t columns) const override;
  Result<LinearWeight> tied_linear(std::string_view module, std::string_view tensor, std::int64_t rows,
                                   std::int64_t columns) const override;
  Result<LinearWeight> derived_linear(std::string_view module, const DerivedWeight& weight) const override;

  const WeightPolicy& policy() const { return policy_; }

  /// Of the copies that are kept.
  std::int64_t copied_bytes() const;
  /// Lets go of the copies; pointers to them are void. A weight asked for again is copied again.
  void drop_copies() const;

 private:
  /// A plain tensor, in memory of its own where it had to be converted.
  struct PlainTensor {
    WeightTensor tensor;
    kernels::Buffer memory;
  };
  /// Tells of a copy that is made.
  void report(std::int64_t bytes) const;
  /// `error` about what is in `tensor`, with the file's name.
  Error in_file(const WeightTensor& tensor, Error error) const;
  Result<PlainTensor> as_plain(const WeightTensor& tensor, DType dtype) const;
  Result<LinearWeight> copy(std::string_view module, const kernels::WeightMatrix& matrix) const;
  Result<LinearWeight> quantize(std::string_view module, const WeightTensor& tensor,
                                const kernels::QuantizedFormat& format) const;
  Result<LinearWeight> packed(const WeightTensor& tensor, const kernels::QuantizedFormat& format) const;
  Result<LinearWeight> float8(std::string_view module, const WeightTensor& tensor, const Float8Weights& weights) const;
  Result<LinearWeight> make_derived(std::string_view module, const DerivedWeight& weight) const;

  const WeightSource& stored_;
  WeightPolicy policy_;
  WeightConverter converter_;
  CopyProgress progress_;
  mutable std::atomic<std::int64_t> reported_bytes_ = 0;
  mutable std::mutex mutex_;
  mutable std::map<std::string, kernels::Buffer, std::less<>> converted_;
  mutable std::map<std::string, kernels::Buffer, std::less<>> copied_;  // by module
  mutable std::map<std::string, std::shared_ptr<const QuantizedWeights>, std::less<>>
      quantized_;  // by module; what the checkpoint has so, by tensor
  /// By module: what owns the scales, and the data where they lie in the file.
  mutable std::map<std::string, std::shared_ptr<const QuantizedRows>, std::less<>> float8_;
  mutable std::mutex derived_mutex_;                                  // of what follows; locked before mutex_
  mutable std::map<std::string, LinearWeight, std::less<>> derived_;  // by module
};

}  // namespace pagoda::weights
