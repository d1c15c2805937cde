#include "io/model_files/gguf/gguf_tensor_file.hpp"

#include <cstddef>
#include <utility>

#include "io/model_files/gguf/gguf_blocks.hpp"
#include "io/model_files/gguf/gguf_bytes.hpp"

namespace pagoda::io {
namespace {

constexpr std::uint32_t kWrittenVersion = 3;

std::size_t bytes_of_tensor(const GgufTensorHeader& tensor) {
  const GgmlTypeInfo* info = ggml_type_info(tensor.type);
  PAGODA_ASSERT(info != nullptr && !tensor.shape.empty() && tensor.shape.back() % info->block_elements == 0,
                "a known type and whole blocks");
  std::int64_t blocks = tensor.shape.back() / info->block_elements;
  for (std::size_t i = 0; i + 1 < tensor.shape.size(); ++i) blocks *= tensor.shape[i];
  return static_cast<std::size_t>(blocks * info->block_bytes);
}

}  // namespace

Result<TensorFile> create_gguf_file(const std::filesystem::path& path, const GgufMetadata& metadata,
                                    const std::vector<GgufTensorHeader>& tensors, std::int64_t alignment) {
  using gguf_bytes::add_number;
  const auto step = static_cast<std::size_t>(alignment);
  const auto aligned = [=](std::size_t place) { return (place + step - 1) / step * step; };
  std::string header = "GGUF";
  add_number(header, kWrittenVersion);
  add_number(header, std::uint64_t{tensors.size()});
  add_number(header, std::uint64_t{metadata.size()});
  header += metadata.bytes();
  TensorFile::Extents extents;
  std::size_t end = 0;  // end of the data so far
  for (const GgufTensorHeader& tensor : tensors) {
    gguf_bytes::add_text(header, tensor.name);
    add_number(header, static_cast<std::uint32_t>(tensor.shape.size()));
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size) {
      add_number(header, static_cast<std::uint64_t>(*size));
    }
    add_number(header, tensor.type);
    add_number(header, std::uint64_t{end});
    const std::size_t bytes = bytes_of_tensor(tensor);
    const bool is_new = extents.emplace(tensor.name, TensorFile::Extent{end, bytes}).second;
    PAGODA_ASSERT(is_new, "names of tensors differ");
    end = aligned(end + bytes);
  }
  header.resize(aligned(header.size()), '\0');
  return TensorFile::create(path, header, std::move(extents), end);
}

}  // namespace pagoda::io
