#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "io/model_files/quantized/folder_parts.hpp"
#include "io/model_files/quantized/quantized_model_writer.hpp"
#include "io/model_files/safetensors_file.hpp"
#include "kernels/dtype.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Writes a Hugging Face folder whose linear layers are quantised in groups of columns, in compressed-tensors' format
/// pack-quantized; all other tensors are as in the parts. config.json is written last, so a folder with a config.json
/// is complete. Files that are not finished are removed.
///
/// A rotation (kernels/rotation.hpp) is described in transform_config: a random-hadamard of blocks of x and of weights,
/// whose matrix is stored beside each module.
class CompressedTensorsWriter final : public QuantizedModelWriter {
 public:
  struct Format {
    std::int64_t group_size = 32;    ///< must divide the columns of every module
    bool asymmetric = false;         ///< whether groups have a zero point
    DType scale_dtype = DType::f16;  ///< f16 or bf16
    bool rotated = false;            ///< whether weights are those of rotated columns
  };

  /// Checks that a folder may be written at `folder`: it must not exist, be empty, or hold only unfinished files of
  /// this writer. Errors (param out): bad_config, io_failed.
  static Status check_folder(const std::filesystem::path& folder);

  /// Makes `folder` and copies all tensors except the weights of `modules`, the model's modules. Modules that are one
  /// module in the folder must be written one after the other, in order. Errors: those of check_folder; unsupported
  /// (the model of config.json is quantised already), io_failed.
  static Result<CompressedTensorsWriter> create(FolderParts parts, const std::filesystem::path& folder,
                                                const std::vector<WrittenModule>& modules, const Format& format);

  /// Weights must have no minimums.
  Status write(const WrittenModule& module, const WrittenWeights& weights) override;
  Status finish() override;
  std::int64_t written_bytes() const override;

 private:
  CompressedTensorsWriter(FolderParts parts, std::filesystem::path folder, Format format, std::string config,
                          std::shared_ptr<const void> made_folder, TensorFile weights)
      : parts_(std::move(parts)),
        folder_(std::move(folder)),
        format_(format),
        config_(std::move(config)),
        made_folder_(std::move(made_folder)),
        weights_(std::move(weights)) {}

  /// The parts so far of a module that is joined in the folder.
  struct Begun {
    std::size_t num_parts = 0;
    std::int64_t rows = 0;
    std::vector<std::uint8_t> q;
    std::vector<float> scales;
    std::vector<std::uint8_t> zeros;
  };

  Status write_part(const FolderParts::Joined& joined, const WrittenModule& module, const WrittenWeights& weights);
  Status write_whole(const WrittenModule& module, const WrittenWeights& weights);
  Status write_config() const;

  FolderParts parts_;  // without tensors and config.json
  std::filesystem::path folder_;
  Format format_;
  std::string config_;                       // text of config.json
  std::shared_ptr<const void> made_folder_;  // its deleter removes the folder if create() made it and it is empty
  TensorFile weights_;
  Begun begun_;
};

}  // namespace pagoda::io
