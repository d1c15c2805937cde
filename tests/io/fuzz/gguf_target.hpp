#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "io/model_files/gguf/gguf_parse.hpp"
#include "tests/io/fuzz/fuzz_folder.hpp"
#include "tests/support/safetensors_file.hpp"

namespace pagoda::io::testing {

/// Reads `bytes` as a GGUF file. Whatever they are, there is a one-line error or strings and data of tensors that lie
/// within the file.
inline void try_gguf(std::string_view bytes) {
  const auto file = test::bytes_of(bytes);
  const auto check_inside = [&](std::span<const std::byte> part) {
    const bool is_inside =
        part.empty() || (part.data() >= file.data() && part.data() + part.size() <= file.data() + file.size());
    PAGODA_ASSERT(is_inside, "what is read lies within the file");
  };
  const auto contents = parse_gguf(file, "fuzz");
  if (!contents) return check_error(contents.error());
  for (const auto& [key, value] : contents->metadata) {
    if (const auto* text = std::get_if<std::string_view>(&value)) check_inside(test::bytes_of(*text));
    if (const auto* texts = std::get_if<std::vector<std::string_view>>(&value)) {
      for (const auto text : *texts) check_inside(test::bytes_of(text));
    }
  }
  for (const auto& [name, tensor] : contents->tensors) {
    PAGODA_ASSERT(name == tensor.name && !tensor.shape.empty() && tensor.elements() >= 1 && !tensor.data.empty(),
                  "a tensor has a size and data");
    check_inside(tensor.data);
  }
}

}  // namespace pagoda::io::testing
