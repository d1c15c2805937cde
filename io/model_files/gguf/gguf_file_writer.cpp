#include "io/model_files/gguf/gguf_file_writer.hpp"

#include <utility>

#include "io/model_files/gguf/gguf_blocks.hpp"
#include "io/model_files/gguf/gguf_bytes.hpp"

namespace pagoda::io {
namespace {

constexpr std::uint32_t kWrittenVersion = 3;

std::size_t bytes_of_tensor(const GgufFileWriter::Tensor& tensor) {
  const GgmlTypeInfo* info = ggml_type_info(tensor.type);
  PAGODA_ASSERT(info != nullptr && !tensor.shape.empty() && tensor.shape.back() % info->block_elements == 0,
                "a known type and whole blocks");
  std::int64_t blocks = tensor.shape.back() / info->block_elements;
  for (std::size_t i = 0; i + 1 < tensor.shape.size(); ++i) blocks *= tensor.shape[i];
  return static_cast<std::size_t>(blocks * info->block_bytes);
}

}  // namespace

Result<GgufFileWriter> GgufFileWriter::create(const std::filesystem::path& path, const GgufMetadata& metadata,
                                              const std::vector<Tensor>& tensors, std::int64_t alignment) {
  using gguf_bytes::add_number;
  auto file = PartFile::create(path);
  if (!file) return fail(std::move(file.error()));
  GgufFileWriter writer(std::move(*file));
  const auto step = static_cast<std::size_t>(alignment);
  const auto aligned = [=](std::size_t place) { return (place + step - 1) / step * step; };
  std::string header = "GGUF";
  add_number(header, kWrittenVersion);
  add_number(header, std::uint64_t{tensors.size()});
  add_number(header, std::uint64_t{metadata.size()});
  header += metadata.bytes();
  std::size_t end = 0;  // of the data so far
  for (const Tensor& tensor : tensors) {
    gguf_bytes::add_text(header, tensor.name);
    add_number(header, static_cast<std::uint32_t>(tensor.shape.size()));
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size) {
      add_number(header, static_cast<std::uint64_t>(*size));
    }
    add_number(header, tensor.type);
    add_number(header, std::uint64_t{end});
    const std::size_t bytes = bytes_of_tensor(tensor);
    const bool is_new = writer.left_.emplace(tensor.name, Place{end, bytes}).second;
    PAGODA_ASSERT(is_new, "names of tensors differ");
    end = aligned(end + bytes);
  }
  header.resize(aligned(header.size()), '\0');
  for (auto& [name, place] : writer.left_) place.offset += header.size();
  Status status = writer.file_.write_at(0, std::as_bytes(std::span(header)));
  if (status) status = writer.file_.reach(header.size() + end);
  if (!status) return fail(std::move(status.error()));
  return writer;
}

Status GgufFileWriter::write(std::string_view name, std::span<const std::byte> data) {
  const auto place = left_.find(name);
  PAGODA_ASSERT(place != left_.end() && place->second.bytes == data.size(), "a tensor of the file, written once");
  const std::size_t offset = place->second.offset;
  left_.erase(place);
  return file_.write_at(offset, data);
}

Status GgufFileWriter::finish() {
  PAGODA_ASSERT(left_.empty(), "all tensors are written");
  return file_.finish();
}

}  // namespace pagoda::io
