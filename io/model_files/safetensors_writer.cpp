#include "io/model_files/safetensors_writer.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
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
  SafetensorsWriter writer;
  for (const Tensor& tensor : tensors) {
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {end, end + tensor.bytes}}};
    writer.left_.emplace(tensor.name, Place{end, tensor.bytes});
    end += tensor.bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::array<char, 8> length{};
  for (std::size_t i = 0; i < length.size(); ++i) length[i] = static_cast<char>(text.size() >> (8 * i) & 0xFFU);
  for (auto& [name, place] : writer.left_) place.offset += length.size() + text.size();
  writer.path_ = path;
  writer.part_ = path;
  writer.part_ += ".part";
  writer.file_.open(writer.part_, std::ios::binary | std::ios::trunc);
  writer.file_.write(length.data(), length.size());
  writer.file_.write(text.data(), static_cast<std::streamsize>(text.size()));
  if (Status status = writer.check(); !status) return fail(std::move(status.error()));
  return writer;
}

SafetensorsWriter::~SafetensorsWriter() {
  if (part_.empty()) return;  // finished, or moved from
  file_.close();
  std::error_code error;
  std::filesystem::remove(part_, error);
}

Status SafetensorsWriter::write(std::string_view name, std::span<const std::byte> elements) {
  const auto place = left_.find(name);
  PAGODA_ASSERT(place != left_.end() && place->second.bytes == elements.size(), "a tensor of the file, written once");
  file_.seekp(static_cast<std::streamoff>(place->second.offset));
  file_.write(reinterpret_cast<const char*>(elements.data()), static_cast<std::streamsize>(elements.size()));
  left_.erase(place);
  return check();
}

Status SafetensorsWriter::finish() {
  PAGODA_ASSERT(left_.empty(), "all tensors are written");
  file_.close();
  if (Status status = check(); !status) return status;
  std::error_code error;
  std::filesystem::rename(part_, path_, error);
  if (error) return fail(ErrorCode::io_failed, "cannot rename " + part_.string() + ": " + error.message());
  part_.clear();
  return {};
}

Status SafetensorsWriter::check() const {
  if (file_) return {};
  const int reason = errno;
  return fail(ErrorCode::io_failed,
              "cannot write " + part_.string() + (reason != 0 ? ": " + std::generic_category().message(reason) : ""));
}

}  // namespace pagoda::io
