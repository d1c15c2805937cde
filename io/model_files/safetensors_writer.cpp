#include "io/model_files/safetensors_writer.hpp"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "io/model_files/tensor_entry.hpp"

namespace pagoda::io {
namespace {

std::size_t element_bytes(const SafetensorsWriter::Tensor& tensor) {
  const auto elements = static_cast<std::size_t>(num_elements(tensor.shape));
  return elements == 0 ? 0 : tensor.bytes / elements;
}

}  // namespace

Result<SafetensorsWriter> SafetensorsWriter::create(const std::filesystem::path& path, std::vector<Tensor> tensors) {
  std::ranges::sort(tensors, [](const Tensor& a, const Tensor& b) {
    const auto width_a = element_bytes(a);
    const auto width_b = element_bytes(b);
    return width_a != width_b ? width_a > width_b : a.name < b.name;
  });
  nlohmann::ordered_json header{{"__metadata__", {{"format", "pt"}}}};
  std::size_t end = 0;
  auto file = PartFile::create(path);
  if (!file) return fail(std::move(file.error()));
  SafetensorsWriter writer(std::move(*file));
  for (const Tensor& tensor : tensors) {
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {end, end + tensor.bytes}}};
    writer.left_.emplace(tensor.name, Place{end, tensor.bytes});
    end += tensor.bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string length(8, '\0');
  for (std::size_t i = 0; i < length.size(); ++i) length[i] = static_cast<char>(text.size() >> (8 * i) & 0xFFU);
  for (auto& [name, place] : writer.left_) place.offset += length.size() + text.size();
  text.insert(0, length);
  Status status = writer.file_.write_at(0, std::as_bytes(std::span(text)));
  if (!status) return fail(std::move(status.error()));
  return writer;
}

Status SafetensorsWriter::write(std::string_view name, std::span<const std::byte> elements) {
  const auto place = left_.find(name);
  PAGODA_ASSERT(place != left_.end() && place->second.bytes == elements.size(), "a tensor of the file, written once");
  const std::size_t offset = place->second.offset;
  left_.erase(place);
  return file_.write_at(offset, elements);
}

Status SafetensorsWriter::finish() {
  PAGODA_ASSERT(left_.empty(), "all tensors are written");
  return file_.finish();
}

}  // namespace pagoda::io
