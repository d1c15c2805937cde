#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "io/model_files/checkpoint.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// The contents of a Hugging Face folder of a model with plain weights.
struct FolderParts {
  struct Tensor {
    std::string name;
    std::string dtype;  ///< element type in safetensors' notation, for example "BF16"
    std::vector<std::int64_t> shape;
    std::size_t bytes = 0;
    /// Returns the elements, row by row: in place, or written to `memory`.
    std::function<std::span<const std::byte>(std::vector<std::byte>& memory)> data;
  };

  /// Linear layers of the model that are one module of the folder, with their rows one after the other.
  struct Joined {
    std::string name;
    std::vector<std::string> modules;
  };

  nlohmann::ordered_json config;  ///< config.json
  std::vector<Tensor> tensors;
  std::vector<Joined> joined;
  std::filesystem::path copied_from;         ///< folder whose other files are copied; empty: none
  std::map<std::string, std::string> texts;  ///< contents of other files by name
};

/// Returns the parts of the folder `model`. `checkpoint` holds its weights and must outlive the parts. Errors:
/// unsupported (tensors that are not row-major), bad_config or io_failed (config.json).
Result<FolderParts> folder_parts_of_folder(const std::filesystem::path& model, const Checkpoint& checkpoint);

/// Writes the files that are neither weights nor config.json into `folder`. Errors: io_failed.
Status write_other_files(const FolderParts& parts, const std::filesystem::path& folder);

}  // namespace pagoda::io
