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

/// Writes a Hugging Face folder whose linear layers are quantised in groups of columns, in the format pack-quantized of
/// compressed-tensors; everything else is as its parts have it. config.json comes last, so a folder that has
/// one is whole; what was begun and not finished is removed.
///
/// A rotation (kernels/rotation.hpp) is written as transform_config describes one: a random-hadamard of blocks of x and
/// of weights, whose matrix lies beside each module.
class CompressedTensorsWriter final : public QuantizedModelWriter {
 public:
  struct Format {
    std::int64_t group_size = 32;    ///< divides the columns of every module
    bool asymmetric = false;         ///< groups have a zero point
    DType scale_dtype = DType::f16;  ///< or bf16
    bool rotated = false;            ///< weights are those of rotated columns
  };

  /// Whether a folder may be written there: nothing, an empty folder, or one that holds only what was begun and cut
  /// off. Errors (param out): bad_config, io_failed.
  static Status check_folder(const std::filesystem::path& folder);

  /// Makes `folder` and copies all tensors but the weights of `modules`, which are those of the model: modules that are
  /// one in the folder are written one after the other, in order. Errors: those of check_folder; unsupported (a
  /// config.json of a model that is quantised), io_failed.
  static Result<CompressedTensorsWriter> create(FolderParts parts, const std::filesystem::path& folder,
                                                const std::vector<WrittenModule>& modules, const Format& format);

  /// Weights have no minimums.
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

  /// The first parts of a module of the folder.
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

  FolderParts parts_;  // but for tensors and config.json
  std::filesystem::path folder_;
  Format format_;
  std::string config_;                       // the text of config.json
  std::shared_ptr<const void> made_folder_;  // removes the folder at its end if it was made here and is empty
  TensorFile weights_;
  Begun begun_;
};

}  // namespace pagoda::io
