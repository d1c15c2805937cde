#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/model_files/checkpoint.hpp"
#include "io/model_files/safetensors_writer.hpp"
#include "kernels/dtype.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Writes a Hugging Face folder whose linear layers are quantised in the format pack-quantized of compressed-tensors,
/// symmetric in groups of columns, which vLLM and transformers read as well; everything else is as the model's folder
/// has it.
class CompressedTensorsWriter {
 public:
  struct Format {
    int bits = 4;                  ///< 4 or 8
    std::int64_t group_size = 32;  ///< divides the columns of every module
  };
  struct Module {
    std::string name;  ///< its weight is the tensor NAME.weight of the checkpoint
    std::int64_t rows = 0;
    std::int64_t columns = 0;
  };

  /// Makes `folder`, which must be empty or not be there, and copies all tensors but the weights of `modules`.
  /// `checkpoint`: that of the folder `model`, which is not quantised; it must outlive this.
  /// Errors: bad_config (param out: the folder is not empty), unsupported (a checkpoint that is quantised or holds
  /// tensors that do not lie row-major), bad_file (config.json), io_failed.
  static Result<CompressedTensorsWriter> create(const std::filesystem::path& model, const Checkpoint& checkpoint,
                                                const std::filesystem::path& folder, std::vector<Module> modules,
                                                const Format& format);

  /// `q`: [rows, columns], one integer from 0 to 2^bits - 1 a byte; `scales`: [rows, columns / group_size]. A weight is
  /// scale * (q - 2^(bits - 1)). Errors: io_failed.
  Status write(const Module& module, std::span<const std::uint8_t> q, std::span<const Float16> scales);

  /// Call once all modules are written: only from here on is the folder a model. Errors: io_failed.
  Status finish();

 private:
  CompressedTensorsWriter(std::filesystem::path model, std::filesystem::path folder, Format format, std::string config,
                          SafetensorsWriter weights)
      : model_(std::move(model)),
        folder_(std::move(folder)),
        format_(format),
        config_(std::move(config)),
        weights_(std::move(weights)) {}

  std::filesystem::path model_;
  std::filesystem::path folder_;
  Format format_;
  std::string config_;  // the text of config.json
  SafetensorsWriter weights_;
};

}  // namespace pagoda::io
