#include "io/adapters/adapter_tensors.hpp"

#include <new>
#include <utility>

#include "io/adapters/adapter_matrix.hpp"
#include "io/model_files/file_text.hpp"
#include "io/model_files/safetensors.hpp"
#include "io/model_files/torch/torch_file.hpp"

namespace pagoda::io {
namespace {

constexpr const char* kSafetensorsName = "adapter_model.safetensors";
constexpr const char* kTorchName = "adapter_model.bin";

std::size_t row_major_bytes(const TensorEntry& entry) {
  const auto dtype = weight_dtype(entry.dtype);
  return dtype ? static_cast<std::size_t>(num_elements(entry.shape)) * size_of(*dtype) : 0;
}

}  // namespace

Result<AdapterTensors> AdapterTensors::open(const std::filesystem::path& folder) {
  const bool is_safetensors = has_entry(folder / kSafetensorsName);
  if (!is_safetensors && !has_entry(folder / kTorchName)) {
    return fail(ErrorCode::io_failed, folder.string() + ": there is no " + kSafetensorsName + " and no " + kTorchName);
  }
  auto file = MappedFile::open(folder / (is_safetensors ? kSafetensorsName : kTorchName));
  if (!file) return fail(std::move(file.error()));
  auto entries = is_safetensors ? parse_safetensors(file->bytes(), file->path()).map([](SafetensorsHeader&& header) {
    return std::move(header.tensors);
  })
                                : parse_torch_file(file->bytes(), file->path());
  if (!entries) return fail(std::move(entries.error()));
  std::size_t left = file->bytes().size() * kMaxCopiedTimesFile;
  for (const auto& [name, entry] : *entries) {
    const std::size_t bytes = row_major_bytes(entry);
    if (bytes > left) {
      return fail(ErrorCode::bad_file, file->path() + ": tensors up to " + quote(name) + " have more than " +
                                           std::to_string(kMaxCopiedTimesFile) +
                                           " times the bytes of the file: they share their elements");
    }
    left -= bytes;
  }
  return AdapterTensors(std::move(*file), std::move(*entries));
}

tl::unexpected<Error> AdapterTensors::bad(std::string_view name, const std::string& reason, ErrorCode code) const {
  return fail(code, path() + ": tensor " + quote(name) + ": " + reason);
}

Result<adapters::AdapterMatrix> AdapterTensors::matrix(std::string_view name, std::size_t dimensions) const {
  const TensorEntry& entry = entries_.find(name)->second;
  if (entry.shape.size() != dimensions) {
    return bad(name, "shape " + shape_text(entry.shape) + " must have " + std::to_string(dimensions) +
                         (dimensions == 1 ? " dimension" : " dimensions"));
  }
  const auto dtype = weight_dtype(entry.dtype);
  if (!dtype) return bad(name, "dtype " + entry.dtype + " cannot be used (F32, F16 and BF16 can)");
  if (num_elements(entry.shape) == 0) return bad(name, "shape " + shape_text(entry.shape) + " has no elements");
  const std::size_t bytes = row_major_bytes(entry);
  if (bytes > entry.end - entry.begin) {
    return bad(name, "it is an expanded view, which shows the same elements several times");
  }
  adapters::AdapterMatrix matrix{*dtype, entry.shape.front(), dimensions == 1 ? 1 : entry.shape.back(), {}};
  try {
    matrix.data.resize(bytes);
  } catch (const std::bad_alloc&) {
    return bad(name, "no memory for its " + std::to_string(bytes) + " bytes", ErrorCode::out_of_memory);
  }
  copy_elements(entry, file_.bytes().data() + entry.begin, size_of(*dtype), matrix.data.data());
  if (!is_finite(matrix)) return bad(name, "an element is infinite or not a number");
  return matrix;
}

}  // namespace pagoda::io
