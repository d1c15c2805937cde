// libFuzzer entry: any bytes at all are either refused in one line or give strings and data of tensors that lie within
// the file.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "io/model_files/gguf/gguf_parse.hpp"

namespace {

void check_inside(std::span<const std::byte> part, std::span<const std::byte> file) {
  if (part.empty()) return;
  if (part.data() < file.data() || part.data() + part.size() > file.data() + file.size()) std::abort();
}

void check_inside(std::string_view text, std::span<const std::byte> file) {
  check_inside(std::as_bytes(std::span(text)), file);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  const auto contents = pagoda::io::parse_gguf(file, "fuzz");
  if (!contents) {
    if (contents.error().message.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  for (const auto& [key, value] : contents->metadata) {
    if (const auto* text = std::get_if<std::string_view>(&value)) check_inside(*text, file);
    if (const auto* texts = std::get_if<std::vector<std::string_view>>(&value)) {
      for (const auto text : *texts) check_inside(text, file);
    }
  }
  for (const auto& [name, tensor] : contents->tensors) {
    if (name != tensor.name || tensor.shape.empty() || tensor.elements() < 1 || tensor.data.empty()) std::abort();
    check_inside(tensor.data, file);
  }
  return 0;
}
