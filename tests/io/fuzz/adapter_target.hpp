#pragma once

#include <set>
#include <string>
#include <string_view>

#include "io/adapters/gguf_adapter.hpp"
#include "io/adapters/read_adapter.hpp"
#include "tests/io/fuzz/fuzz_folder.hpp"
#include "tests/io/fuzz/gguf_model_target.hpp"
#include "tests/io/fuzz/model_folder_target.hpp"

namespace pagoda::io::testing {

/// Whatever the files of an adapter are, there is a one-line error or an adapter whose shapes fit.
inline void check_adapter(const Result<adapters::Adapter>& adapter) {
  if (!adapter) return check_error(adapter.error());
  const auto check_matrix = [](const adapters::AdapterMatrix& matrix) {
    PAGODA_ASSERT(matrix.rows > 0 && matrix.columns > 0, "a matrix has elements");
    PAGODA_ASSERT(matrix.data.size() == static_cast<std::size_t>(matrix.rows * matrix.columns) * size_of(matrix.dtype),
                  "a matrix has the bytes of its elements");
  };
  PAGODA_ASSERT(adapter->changes.empty() == adapter->prompt.has_value(), "an adapter is of one kind");
  if (adapter->prompt) check_matrix(adapter->prompt->rows);
  std::set<std::string> names;
  for (const auto& change : adapter->changes) {
    PAGODA_ASSERT(!change.module.empty() && names.insert(change.module).second, "a module has a name of its own");
    PAGODA_ASSERT(change.lora || change.weight || change.bias, "a module has a change");
    if (change.weight) check_matrix(*change.weight);
    if (change.bias) check_matrix(*change.bias);
    if (!change.lora) continue;
    check_matrix(change.lora->a);
    check_matrix(change.lora->b);
    PAGODA_ASSERT(change.lora->rank() == change.lora->b.columns && change.lora->rank() <= 512, "the ranks fit");
    PAGODA_ASSERT(change.lora->scale >= 0, "a scale is a number from 0");
    if (change.lora->magnitude) PAGODA_ASSERT(change.lora->magnitude->rows == change.lora->b.rows, "one for each row");
  }
}

/// Reads the files of `description` (write_described_files) as a PEFT folder.
inline void try_adapter_folder(std::string_view description) {
  static const FuzzFolder folder;
  folder.clear();
  write_described_files(description, folder);
  check_adapter(read_adapter(folder.path(), 4));
}

/// Reads the first file of `description` (DescribedGgufs) as an adapter.
inline void try_gguf_adapter(std::string_view description) {
  constexpr std::size_t kMaxBytes = std::size_t{1} << 18;
  static const FuzzFolder folder;
  if (description.empty() || description.size() > kMaxBytes) return;
  folder.clear();
  const auto path = DescribedGgufs(description).write(folder);
  check_adapter(read_gguf_adapter(path, 4));
}

}  // namespace pagoda::io::testing
