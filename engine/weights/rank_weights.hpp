#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/weights/weight_source.hpp"

namespace pagoda::weights {

/// A range of an axis of a tensor.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// Returns the number of elements in the ranges.
std::int64_t size_of_all(const std::vector<Range>& ranges);

/// The part of a module (a linear layer or an embedding) that one of several ranks holds (Shoeybi et al. 2019,
/// Megatron-LM).
struct ModuleSlice {
  enum class Axis : std::uint8_t {
    outputs,  ///< rows of the weight, and of the bias
    inputs,   ///< columns of the weight; ranks add their outputs, and the first rank alone has the bias
  };
  Axis axis = Axis::outputs;
  std::int64_t full_size = 0;         ///< of the axis in the whole module
  std::vector<Range> ranges;          ///< of the axis, in order
  bool is_stored_transposed = false;  ///< whether checkpoints hold the weight as [in, out]

  /// Returns the size of the axis of this rank's part.
  std::int64_t size() const { return size_of_all(ranges); }
};

/// The weights of one rank: the parts of a checkpoint's tensors that the rank's layers ask for by their own, smaller
/// shapes. Rows stay where they lie in the checkpoint, and so do whole tensors; columns become copies, like tensors of
/// another type. Thread-safe.
class RankWeights final : public WeightSource {
 public:
  /// Returns the part of a module, named as in the checkpoint; none = every rank has the whole module.
  using SliceOf = std::function<std::optional<ModuleSlice>(std::string_view module)>;

  /// `stored` must outlive this. `keeps_quantized`: whether quantised matrices are used in their format
  /// (WeightPolicy::keep_quantized); if not, they are dequantised, and may be divided anywhere.
  RankWeights(const WeightSource& stored, bool is_first_rank, bool keeps_quantized, SliceOf slice_of)
      : stored_(stored),
        is_first_rank_(is_first_rank),
        keeps_quantized_(keeps_quantized),
        slice_of_(std::move(slice_of)) {}

  /// More errors: unsupported if a quantised matrix cannot be divided there, because a group of its weights would be
  /// cut.
  Result<WeightTensor> tensor(std::string_view name, const std::vector<std::int64_t>& shape) const override;
  Result<WeightTensor> describe(std::string_view name, const std::vector<std::int64_t>& shape) const override;
  bool contains(std::string_view name) const override { return stored_.contains(name); }
  bool holds_derived(std::string_view module) const override { return stored_.holds_derived(module); }
  std::string file_of(const WeightTensor& tensor) const override { return stored_.file_of(tensor); }
  void release_pages(const WeightTensor& tensor) const override { stored_.release_pages(tensor); }
  std::int64_t rows_of_whole(std::string_view module, std::int64_t rows) const override;

 private:
  using Take = Result<WeightTensor> (WeightSource::*)(std::string_view name, const std::vector<std::int64_t>&) const;
  Result<WeightTensor> part_of(std::string_view name, const std::vector<std::int64_t>& shape, Take take) const;
  WeightTensor bias_part(WeightTensor whole, const ModuleSlice& slice) const;

  const WeightSource& stored_;
  bool is_first_rank_;
  bool keeps_quantized_;
  SliceOf slice_of_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::vector<std::byte>, std::less<>> biases_;  // copies, by tensor
};

}  // namespace pagoda::weights
