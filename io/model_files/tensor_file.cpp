#include "io/model_files/tensor_file.hpp"

namespace pagoda::io {

Result<TensorFile> TensorFile::create(const std::filesystem::path& path, std::string_view header, Extents extents,
                                      std::size_t data_bytes) {
  auto file = PartFile::create(path);
  if (!file) return fail(std::move(file.error()));
  Status status = file->write_at(0, std::as_bytes(std::span(header)));
  if (status) status = file->reach(header.size() + data_bytes);
  if (!status) return fail(std::move(status.error()));
  return TensorFile(std::move(*file), std::move(extents), header.size());
}

Status TensorFile::write(std::string_view name, std::span<const std::byte> data) {
  const auto extent = left_.find(name);
  PAGODA_ASSERT(extent != left_.end() && extent->second.bytes == data.size(), "a tensor of the file, written once");
  const std::size_t offset = header_bytes_ + extent->second.offset;
  left_.erase(extent);
  return file_.write_at(offset, data);
}

Status TensorFile::finish() {
  PAGODA_ASSERT(left_.empty(), "all tensors are written");
  return file_.finish();
}

}  // namespace pagoda::io
