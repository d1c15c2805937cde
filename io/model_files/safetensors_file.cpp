#include "io/model_files/safetensors_file.hpp"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "io/model_files/tensor_entry.hpp"

namespace pagoda::io {
namespace {

std::size_t element_bytes(const SafetensorsTensor& tensor) {
  const auto elements = static_cast<std::size_t>(num_elements(tensor.shape));
  return elements == 0 ? 0 : tensor.bytes / elements;
}

}  // namespace

Result<TensorFile> create_safetensors_file(const std::filesystem::path& path, std::vector<SafetensorsTensor> tensors,
                                           const std::map<std::string, std::string>& metadata) {
  std::ranges::sort(tensors, [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
    const auto width_a = element_bytes(a);
    const auto width_b = element_bytes(b);
    return width_a != width_b ? width_a > width_b : a.name < b.name;
  });
  nlohmann::ordered_json header{{"__metadata__", {{"format", "pt"}}}};
  for (const auto& [key, text] : metadata) header["__metadata__"][key] = text;
  TensorFile::Extents extents;
  std::size_t end = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {end, end + tensor.bytes}}};
    extents.emplace(tensor.name, TensorFile::Extent{end, tensor.bytes});
    end += tensor.bytes;
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string length(8, '\0');
  for (std::size_t i = 0; i < length.size(); ++i) length[i] = static_cast<char>(text.size() >> (8 * i) & 0xFFU);
  return TensorFile::create(path, length + text, std::move(extents), end);
}

}  // namespace pagoda::io
