#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "io/model_files/gguf/gguf_blocks.hpp"
#include "io/model_files/gguf/gguf_file.hpp"
#include "io/model_files/gguf/gguf_names.hpp"
#include "io/model_files/model_weights.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// The weights of a GGUF file under Hugging Face's names. Plain tensors point into the mapped file. Matrices whose rows
/// are in another order are read row by row, as quantised ones are. Thread-safe after open.
class GgufWeights final : public ModelWeights {
 public:
  /// Errors: as find_gguf_architecture; bad_file (a number of heads that is no integer).
  static Result<std::shared_ptr<const GgufWeights>> open(std::shared_ptr<const GgufFile> file);

  Result<weights::WeightTensor> tensor(std::string_view name, const std::vector<std::int64_t>& shape) const override;
  Result<weights::WeightTensor> describe(std::string_view name, const std::vector<std::int64_t>& shape) const override;
  bool contains(std::string_view name) const override { return find(name) != nullptr; }
  bool holds_derived(std::string_view module) const override;
  void release_pages(const weights::WeightTensor& tensor) const override;
  std::string file_of(const weights::WeightTensor& tensor) const override;

  CheckpointFacts facts() const override;
  std::string quantization() const override;
  Status check_all_used(const models::ModelSpec& spec) const override;

 private:
  GgufWeights(std::shared_ptr<const GgufFile> file, const GgufArchitecture& architecture, const GgufHeads& heads)
      : file_(std::move(file)), architecture_(architecture), heads_(heads) {}

  /// Returns the tensor for a name of Hugging Face's; null when there is none.
  const GgufTensor* find(std::string_view name) const;
  /// Returns the number of heads whose rows are interleaved in `tensor`; 0 when rows are in order.
  std::int64_t interleaved_heads(const GgufTensor& tensor) const;
  ScaleRange scale_range(const GgufTensor& tensor) const;
  /// Returns a copy of a plain tensor with its rows in Hugging Face's order.
  const void* in_order(const GgufTensor& tensor, std::int64_t num_heads) const;

  std::shared_ptr<const GgufFile> file_;
  const GgufArchitecture& architecture_;
  GgufHeads heads_;
  mutable std::mutex mutex_;                                             // guards the members below
  mutable std::set<std::string, std::less<>> used_;                      // by the file's names
  mutable std::map<std::string, ScaleRange, std::less<>> scale_ranges_;  // ranges of quantised tensors
  // Copies of tensors with interleaved rows.
  mutable std::map<std::string, std::unique_ptr<std::byte[]>, std::less<>> copies_;
};

}  // namespace pagoda::io
