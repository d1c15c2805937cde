#pragma once

#include <string_view>

#include "io/model_files/safetensors.hpp"
#include "tests/io/fuzz/fuzz_folder.hpp"
#include "tests/support/safetensors_file.hpp"

namespace pagoda::io::testing {

/// Reads `bytes` as a safetensors file. Whatever they are, there is a one-line error or a header whose tensors lie
/// within the file.
inline void try_safetensors(std::string_view bytes) {
  const auto header = parse_safetensors(test::bytes_of(bytes), "fuzz");
  if (!header) return check_error(header.error());
  for (const auto& [name, entry] : header->tensors) {
    PAGODA_ASSERT(entry.begin <= entry.end && entry.end <= bytes.size(), "tensors lie within the file");
  }
}

}  // namespace pagoda::io::testing
