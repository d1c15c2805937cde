#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/model_files/checkpoint.hpp"
#include "io/model_files/quantized/quantized_checkpoint.hpp"
#include "tests/io/fuzz/fuzz_folder.hpp"
#include "tests/support/safetensors_file.hpp"

namespace pagoda::io::testing {

/// Takes a matrix apart in every way that a model does.
inline void try_rows(const weights::QuantizedRows& matrix, std::int64_t rows, std::int64_t columns) {
  std::vector<float> dequantized(static_cast<std::size_t>(columns));
  std::vector<std::uint8_t> q(dequantized.size());
  std::vector<Float16> scales(dequantized.size());
  std::vector<Float16> mins(dequantized.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    matrix.dequantize(row, dequantized.data());
    if (!matrix.format()) continue;
    matrix.unpack(row, {q.data(), scales.data(), matrix.format()->asymmetric ? mins.data() : nullptr});
    const int most = (1 << matrix.format()->bits) - 1;
    PAGODA_ASSERT(std::ranges::all_of(q, [&](int integer) { return integer <= most; }), "integers have their bits");
  }
}

/// Reads a folder with a config.json, the first line, and a model.safetensors: its header is the second line, its data
/// all behind. Whatever they are, there are one-line errors or matrices that can be read.
inline void try_quantized_folder(std::string_view bytes) {
  using Shape = std::pair<std::int64_t, std::int64_t>;
  constexpr std::array<Shape, 3> kShapes{Shape{32, 32}, Shape{8, 16}, Shape{64, 2}};
  static const FuzzFolder folder;
  const auto take_line = [&] {
    const std::size_t end = std::min(bytes.find('\n'), bytes.size());
    const std::string_view line = bytes.substr(0, end);
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
    return line;
  };
  folder.write("config.json", take_line());
  const std::string_view header = take_line();
  folder.write("model.safetensors", test::safetensors_file(header, 0).append(bytes));
  const auto weights = open_folder_weights(folder.path());
  if (!weights) return check_error(weights.error());
  PAGODA_ASSERT((*weights)->facts().num_parameters >= 0, "parameters are counted");
  const auto checkpoint = Checkpoint::open(folder.path());
  PAGODA_ASSERT(checkpoint, "the files are opened again");
  std::set<std::string> modules;
  for (const std::string& name : (*checkpoint)->tensor_names()) {
    for (std::size_t dot = name.find('.'); dot != name.npos; dot = name.find('.', dot + 1)) {
      modules.insert(name.substr(0, dot));
    }
  }
  for (const std::string& module : modules) {
    for (const auto& [rows, columns] : kShapes) {
      const auto tensor = (*weights)->tensor(module + ".weight", {rows, columns});
      if (!tensor) {
        check_error(tensor.error());
      } else if (tensor->quantized != nullptr) {
        try_rows(*tensor->quantized, rows, columns);
      }
    }
  }
  if (const Status status = (*weights)->check_all_used({}); !status) check_error(status.error());
}

}  // namespace pagoda::io::testing
