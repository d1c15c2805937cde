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

/// All that a Hugging Face folder of a model with plain weights holds.
struct FolderParts {
  struct Tensor {
    std::string name;
    std::string dtype;  ///< in the words of safetensors, for example "BF16"
    std::vector<std::int64_t> shape;
    std::size_t bytes = 0;
    /// Its elements, row by row: where they lie, or in `memory`.
    std::function<std::span<const std::byte>(std::vector<std::byte>& memory)> data;
  };

  /// Linear layers of the model that is read which are one module of the folder: their rows, one after the other.
  struct Joined {
    std::string name;
    std::vector<std::string> modules;
  };

  nlohmann::ordered_json config;  ///< config.json
  std::vector<Tensor> tensors;
  std::vector<Joined> joined;
  std::filesystem::path copied_from;         ///< whose other files belong to it as well; none where it is empty
  std::map<std::string, std::string> texts;  ///< other files by name: what they hold
};

/// Those of the folder `model`; `checkpoint` is its weights and must outlive them. Errors: unsupported (tensors that do
/// not lie row by row), bad_config or io_failed (config.json).
Result<FolderParts> folder_parts_of_folder(const std::filesystem::path& model, const Checkpoint& checkpoint);

/// Writes the files that are neither weights nor config.json into `folder`. Errors: io_failed.
Status write_other_files(const FolderParts& parts, const std::filesystem::path& folder);

}  // namespace pagoda::io
