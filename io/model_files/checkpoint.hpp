#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/model_files/mapped_file.hpp"
#include "io/model_files/model_weights.hpp"
#include "io/model_files/tensor_entry.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// A tensor of any type as its file has it: row-major, at any address. Valid as long as the checkpoint.
struct StoredTensor {
  std::string_view dtype;  ///< element type in safetensors' notation, for example "I32"
  std::span<const std::int64_t> shape;
  std::span<const std::byte> data;
};

/// The weights of a Hugging Face model folder: model.safetensors, or the shards that model.safetensors.index.json
/// names; in a folder without both: pytorch_model.bin, or the shards that pytorch_model.bin.index.json names (their
/// pickles are read, not executed). The files are mapped and tensors point into them without a copy. Two kinds of
/// tensors are copied once, when they are first asked for: those at an address that their element type cannot be read
/// from (files of early safetensors versions), and those that are not row-major (a transposed view in a file of
/// PyTorch). Tensors have the names that models ask for (canonical_tensor_names), whatever prefixes the files have.
/// Thread-safe after open.
class Checkpoint final : public ModelWeights {
 public:
  /// Maps the files and checks every header. Errors: io_failed (no such folder or file), bad_file and unsupported (see
  /// parse_safetensors and parse_torch_file; an index that names a file outside the folder, a missing shard, or a
  /// tensor that its shard does not hold; two tensors whose names differ in their prefixes only).
  static Result<std::unique_ptr<Checkpoint>> open(const std::filesystem::path& folder);

  Result<weights::WeightTensor> tensor(std::string_view name, const std::vector<std::int64_t>& shape) const override;
  Result<weights::WeightTensor> describe(std::string_view name, const std::vector<std::int64_t>& shape) const override;
  bool contains(std::string_view name) const override { return tensors_.contains(name); }
  /// Drops the tensor's pages from this process's memory. A later access reads them again from the file or from the
  /// system's page cache.
  void release_pages(const weights::WeightTensor& tensor) const override;
  std::string file_of(const weights::WeightTensor& tensor) const override { return path_of(tensor.name); }

  /// Returns a tensor that is not a weight by itself; nothing when the tensor is missing or not row-major. The call
  /// does not count the tensor as used.
  std::optional<StoredTensor> stored(std::string_view name) const;
  /// Returns the first tensor, by name, that is not row-major; empty when all are row-major.
  std::string first_strided() const;
  /// Counts the tensor as used. The tensor may be missing.
  void mark_used(std::string_view name) const;
  /// Returns the file that holds the tensor, or the first file where the tensor is missing.
  const std::string& path_of(std::string_view name) const;

  /// Returns the name that the file has for a tensor. The tensor must exist.
  std::string_view stored_name(std::string_view name) const;

  /// Returns whether both tensors exist and have the same type, shape and elements.
  bool same_bytes(std::string_view one, std::string_view other) const;
  /// Returns whether the files hold a head and no embedding. The head's tensor then serves as the embedding: programs
  /// that write tied tensors once may keep either name.
  bool embedding_is_head() const { return embedding_is_head_; }

  CheckpointFacts facts() const override;
  /// Returns the names of all tensors, sorted.
  std::vector<std::string> tensor_names() const;
  /// Tensors that cannot matter do not count as left over: buffers that a model computes, heads and parts that a causal
  /// language model does not use, biases of zeros, and a head that is tied to the embedding.
  Status check_all_used(const models::ModelSpec& spec) const override;

 private:
  struct Location {
    std::size_t file = 0;  // index in files_
    TensorEntry entry;
    std::string stored_name = {};
  };

  struct Format;

  Checkpoint() = default;
  /// Maps one file and returns its tensors. Afterwards the file's index in files_ is files_.size() - 1.
  Result<TensorEntries> map_file(const std::filesystem::path& path, const Format& format);
  Status open_shards(const std::filesystem::path& folder, const Format& format);
  /// Gives the tensors the names that models ask for.
  Status rename_tensors();
  void share_head_with_embedding();
  bool is_zero_bias(std::string_view name, const Location& location) const;
  std::span<const std::byte> bytes_of(const Location& location) const;
  /// Returns the elements of a tensor in row-major order, in the file or in a copy. Errors: out_of_memory.
  Result<const void*> elements_of(std::string_view name, const Location& location, std::size_t element_bytes) const;

  std::string format_;  ///< CheckpointFacts::format
  std::vector<MappedFile> files_;
  bool embedding_is_head_ = false;
  std::map<std::string, Location, std::less<>> tensors_;
  mutable std::mutex mutex_;  // guards used_ and copies_
  mutable std::set<std::string, std::less<>> used_;
  mutable std::map<std::string, std::unique_ptr<std::byte[]>, std::less<>>
      copies_;  // copies of tensors that cannot be read in place
};

}  // namespace pagoda::io
