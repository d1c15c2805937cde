#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "io/model_files/checkpoint.hpp"
#include "io/model_files/model_weights.hpp"
#include "io/model_files/quantized/quantization_config.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// A Hugging Face folder with quantised linear layers. The weight of a quantised module has the name of a plain one,
/// "<module>.weight", and is QuantizedRows over the mapped file; all other tensors are unchanged. Thread-safe.
class QuantizedCheckpoint final : public ModelWeights {
 public:
  QuantizedCheckpoint(std::unique_ptr<const Checkpoint> checkpoint, QuantizationConfig config)
      : checkpoint_(std::move(checkpoint)), config_(std::move(config)) {}

  Result<weights::WeightTensor> tensor(std::string_view name, const std::vector<std::int64_t>& shape) const override;
  Result<weights::WeightTensor> describe(std::string_view name, const std::vector<std::int64_t>& shape) const override;
  bool contains(std::string_view name) const override;
  /// GPT-2's transposed weights are not transposed in AWQ's, GPTQ's and packed tensors of linear layers.
  bool holds_derived(std::string_view module) const override;
  void release_pages(const weights::WeightTensor& tensor) const override;
  std::string file_of(const weights::WeightTensor& tensor) const override;

  /// Counts parameters as before quantization.
  CheckpointFacts facts() const override;
  std::string quantization() const override { return config_.name; }
  /// Scales of activations and of the KV cache do not count as left over. Neither do biases of zeros, which some
  /// programs write beside every quantised weight.
  Status check_all_used(const models::ModelSpec& spec) const override;

 private:
  struct Opened {
    std::vector<std::int64_t> shape;
    std::shared_ptr<const weights::QuantizedRows> rows;
  };

  bool is_quantized_weight(std::string_view name) const;

  std::unique_ptr<const Checkpoint> checkpoint_;
  QuantizationConfig config_;
  mutable std::mutex mutex_;                                 // guards open_
  mutable std::map<std::string, Opened, std::less<>> open_;  // by the weight's name
};

/// Opens the weights of a Hugging Face folder: a QuantizedCheckpoint if config.json describes a quantization, else a
/// Checkpoint. Errors: as load_quantization_config and Checkpoint::open.
Result<std::shared_ptr<const ModelWeights>> open_folder_weights(const std::filesystem::path& folder);

}  // namespace pagoda::io
