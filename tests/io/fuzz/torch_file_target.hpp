#pragma once

#include <string_view>

#include "io/model_files/torch/torch_file.hpp"
#include "io/model_files/torch/torch_pickle.hpp"
#include "tests/io/fuzz/fuzz_folder.hpp"
#include "tests/support/safetensors_file.hpp"

namespace pagoda::io::testing {

/// Reads `bytes` as a file of PyTorch, and as the pickle in such a file. Whatever they are, there is a one-line error
/// or tensors that lie within the file.
inline void try_torch_file(std::string_view bytes) {
  if (const auto pickle = read_torch_pickle(test::bytes_of(bytes), "fuzz"); !pickle) check_error(pickle.error());
  const auto entries = parse_torch_file(test::bytes_of(bytes), "fuzz");
  if (!entries) return check_error(entries.error());
  for (const auto& [name, entry] : *entries) {
    PAGODA_ASSERT(entry.begin <= entry.end && entry.end <= bytes.size(), "tensors lie within the file");
  }
}

}  // namespace pagoda::io::testing
