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

/// How the weights of a checkpoint are loaded.
struct WeightPolicy {
  /// Type to which all plain weights are converted; none = unchanged.
  std::optional<DType> dtype;
  std::optional<kernels::QuantizedFormat> quantize;  ///< format of linear layers, see format_of; none = they stay plain
  /// Whether matrices that the checkpoint holds quantised are used in their format, where kernels can; otherwise they
  /// are dequantised first.
  bool keep_quantized = true;
  /// Whether plain weights of linear layers are copied into the device's memory, whose huge pages are read faster than
  /// the small pages of a mapped file; otherwise they are used where they lie.
  bool copy_linear = false;
  /// Whether the device is a GPU: integers of 2 and 3 bits are then held in 4 bits, and kInt4Weights become
  /// kPlainInt4Weights.
  bool on_gpu = false;

  /// Returns the format of a linear layer [rows, columns]; none = it stays plain. The head has 8 bits because its
  /// errors go straight into the logits. With 4-bit weights on a CPU, these have 6 bits: the head, projections to
  /// values that several heads share (a few per cent of the weights), and the down projection of every third layer.
  /// Measurements show that these bytes gain the most (docs/benchmarks/quantisation.md).
  std::optional<kernels::QuantizedFormat> format_of(std::string_view module, std::int64_t rows,
                                                    std::int64_t columns) const;
  /// Returns the format in which `tensor` is used as the checkpoint has it; none when it is not used so.
  std::optional<kernels::QuantizedFormat> kept_format(const WeightTensor& tensor) const;
  /// Returns the 8-bit floats of a linear layer if they are used as they are; otherwise null.
  const Float8Weights* kept_float8(const WeightTensor& tensor) const;
  /// Returns the kept format of an embedding, whose columns must be in order. The format is also kept when linear
  /// layers are quantised anew.
  std::optional<kernels::QuantizedFormat> kept_table_format(const WeightTensor& tensor) const;
};

/// Returns the policy of --dtype ("auto" or a DType) and --quantize ("auto", "none", "int8" or "int4"). No other values
/// are allowed.
WeightPolicy weight_policy(const std::string& dtype, const std::string& quantize);

/// Reports how much of the copies is made.
struct CopyProgress {
  std::function<void(double)> report = nullptr;  ///< receives the share that is made, 0 to 1; may be null
  std::int64_t expected_bytes = 0;               ///< bytes of all copies (MeasuredWeights::copied_bytes)
};

/// The weights of a checkpoint in the form that the policy asks for, in the host's memory. A converted or quantised
/// copy is made when a weight is first requested, and kept, so that another model over the same source shares it.
/// Thread-safe.
class LoadedWeights final : public WeightSource {
 public:
  /// `stored` must outlive this. `device` converts and quantises; it must share the host's memory. `kept` holds the
  /// copies, all of this checkpoint and this policy; null = they lie in the device's memory. `progress` is called after
  /// each copy, on the thread that requested it.
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

  /// Returns the bytes of the copies that are kept.
  std::int64_t copied_bytes() const;
  /// Drops the copies; pointers to them become invalid. A weight that is requested again is copied again.
  void drop_copies() const;

 private:
  /// A plain tensor, with memory of its own if it had to be converted.
  struct PlainTensor {
    WeightTensor tensor;
    kernels::Buffer memory;
  };
  /// Reports a copy of `bytes` bytes that is made.
  void report(std::int64_t bytes) const;
  /// Returns `error` about the content of `tensor` with the file's name in front.
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
      quantized_;  // by module; matrices that the checkpoint holds quantised: by tensor
  /// Owners of the scales, and of the data if these lie in the file; by module.
  mutable std::map<std::string, std::shared_ptr<const QuantizedRows>, std::less<>> float8_;
  mutable std::mutex derived_mutex_;                                  // guards the next field; locked before mutex_
  mutable std::map<std::string, LinearWeight, std::less<>> derived_;  // by module
};

}  // namespace pagoda::weights
