#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/models/model_spec.hpp"
#include "engine/weights/weight_source.hpp"
#include "io/model_files/mapped_file.hpp"
#include "io/model_files/safetensors.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Facts of a checkpoint that cost no reading of weights.
struct CheckpointFacts {
  std::int64_t num_files = 0;
  std::int64_t num_tensors = 0;
  std::int64_t num_parameters = 0;  ///< elements of all tensors
  std::int64_t weight_bytes = 0;
};

/// The weights of a Hugging Face model folder: model.safetensors, or the shards that model.safetensors.index.json
/// names. Files are mapped and tensors point into them; nothing is copied, except a tensor that lies at an address its
/// element type cannot be read from (files of early safetensors versions), which is copied once when asked for.
/// Thread-safe after open.
class Checkpoint final : public weights::WeightSource {
 public:
  /// Maps the files and checks every header. Errors: io_failed (no such folder or file), bad_file (see
  /// parse_safetensors; an index that names a file outside the folder, a shard that is missing, or a tensor that its
  /// shard does not hold).
  static Result<std::unique_ptr<Checkpoint>> open(const std::filesystem::path& folder);

  Result<weights::WeightTensor> tensor(std::string_view name, const std::vector<std::int64_t>& shape) const override;
  Result<weights::WeightTensor> describe(std::string_view name, const std::vector<std::int64_t>& shape) const override;
  bool contains(std::string_view name) const override { return tensors_.contains(name); }
  /// Takes the tensor's pages out of this process's memory; they are read again from the file, or from the system's
  /// cache of it.
  void copied(const weights::WeightTensor& tensor) const override;

  CheckpointFacts facts() const;
  /// The names of all tensors, sorted.
  std::vector<std::string> tensor_names() const;
  /// To be asked once a model has taken its weights: bad_file when it has left some, for then the config belongs to
  /// another checkpoint. Buffers that a model computes itself do not count, nor a head that is tied to the embedding.
  Status check_all_taken(const models::ModelSpec& spec) const;

 private:
  struct Location {
    std::size_t file = 0;  // index in files_
    SafetensorsEntry entry;
  };

  Checkpoint() = default;
  /// Maps one file; returns its header. Its index in files_ is files_.size() - 1 afterwards.
  Result<SafetensorsHeader> map_file(const std::filesystem::path& path);
  Status open_shards(const std::filesystem::path& folder, const std::filesystem::path& index);
  const void* aligned(std::string_view name, const std::byte* data, std::size_t bytes, std::size_t alignment) const;

  std::vector<MappedFile> files_;
  std::map<std::string, Location, std::less<>> tensors_;
  mutable std::mutex mutex_;  // of what follows
  mutable std::set<std::string, std::less<>> taken_;
  mutable std::map<std::string, std::unique_ptr<std::byte[]>, std::less<>> copies_;  // of misaligned tensors
};

}  // namespace pagoda::io
