#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "io/model_files/gguf/gguf_model_parts.hpp"
#include "io/model_files/gguf/gguf_tensor_file.hpp"
#include "io/model_files/quantized/quantized_model_writer.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Writes a GGUF file whose linear layers are quantised in blocks of 32 columns; all other tensors are as in the parts.
/// The file is a PartFile until it is finished.
class GgufModelWriter final : public QuantizedModelWriter {
 public:
  /// Weights of 8 bits are written as Q8_0; weights of 4 bits as Q4_1 if they have minimums, else as Q4_0.
  struct Format {
    bool minimums = false;
  };

  /// Checks that `path` does not exist and that its folder does. Errors (param out): bad_config.
  static Status check_file(const std::filesystem::path& path);

  /// Begins the file and copies all tensors except the weights of `modules`, which have Hugging Face's names and whole
  /// blocks of columns. Errors: those of check_file; unsupported (GGUF has no tensor for a module); io_failed.
  static Result<GgufModelWriter> create(const std::filesystem::path& path, GgufModelParts parts,
                                        const std::vector<WrittenModule>& modules, const Format& format);

  /// Returns the path of the file before it is finished; GgufFile::open accepts this file.
  const std::filesystem::path& part() const { return file_.part(); }

  /// Rows must be in Hugging Face's order; scales and minimums must be exact in float16.
  Status write(const WrittenModule& module, const WrittenWeights& weights) override;
  Status finish() override;
  std::int64_t written_bytes() const override;

 private:
  GgufModelWriter(std::filesystem::path path, const GgufModelParts& parts, const Format& format, TensorFile file)
      : path_(std::move(path)),
        architecture_(*parts.architecture),
        heads_(parts.heads),
        format_(format),
        file_(std::move(file)) {}

  std::filesystem::path path_;
  const GgufArchitecture& architecture_;
  GgufHeads heads_;
  Format format_;
  TensorFile file_;
};

}  // namespace pagoda::io
