#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "engine/adapters/adapter.hpp"
#include "io/model_files/mapped_file.hpp"
#include "io/model_files/tensor_entry.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// The tensors of a PEFT folder: adapter_model.safetensors, or adapter_model.bin in a folder without the former. The
/// file is mapped.
class AdapterTensors {
 public:
  /// Errors: io_failed (no such file), errors of parse_safetensors and parse_torch_file, bad_file (tensors of a .bin
  /// that share so many bytes that their copies would exceed kMaxCopiedTimesFile).
  static Result<AdapterTensors> open(const std::filesystem::path& folder);

  const TensorEntries& entries() const { return entries_; }

  /// Copies a matrix, or a vector as [elements, 1]. Errors: bad_file (another number of dimensions, no elements, a type
  /// other than F32, F16 and BF16, an expanded view, an element that is infinite or NaN), out_of_memory.
  Result<adapters::AdapterMatrix> matrix(std::string_view name, std::size_t dimensions) const;

  /// Returns an error about a tensor: "FILE: tensor "NAME": REASON".
  tl::unexpected<Error> bad(std::string_view name, const std::string& reason,
                            ErrorCode code = ErrorCode::bad_file) const;
  const std::string& path() const { return file_.path(); }

 private:
  AdapterTensors(MappedFile file, TensorEntries entries) : file_(std::move(file)), entries_(std::move(entries)) {}

  MappedFile file_;
  TensorEntries entries_;
};

}  // namespace pagoda::io
