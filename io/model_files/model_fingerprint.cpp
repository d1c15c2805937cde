#include "io/model_files/model_fingerprint.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "io/model_files/model_location.hpp"

namespace pagoda::io {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kEndBytes = 64 << 10;  // bytes that are read at each end of a file

bool is_part_of_model(const fs::path& file) {
  constexpr std::array<std::string_view, 4> kEndings{".safetensors", ".bin", ".gguf", ".model"};
  constexpr std::array<std::string_view, 5> kNames{"config.json", "tokenizer.json", "tokenizer_config.json",
                                                   "vocab.json", "merges.txt"};
  return std::ranges::find(kEndings, file.extension().string()) != kEndings.end() ||
         std::ranges::find(kNames, file.filename().string()) != kNames.end();
}

/// Returns the size of a file and the bytes at its two ends.
Result<std::string> ends_of(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  if (error || !file) return fail(ErrorCode::io_failed, "cannot read " + path.string());
  std::string text = std::to_string(size) + "\n";
  const auto read = [&](std::uintmax_t from, std::uintmax_t count) {
    std::string piece(count, '\0');
    file.seekg(static_cast<std::streamoff>(from));
    file.read(piece.data(), static_cast<std::streamsize>(count));
    text += piece;
  };
  read(0, std::min(size, kEndBytes));
  if (size > kEndBytes) read(size - std::min(size - kEndBytes, kEndBytes), std::min(size - kEndBytes, kEndBytes));
  if (!file) return fail(ErrorCode::io_failed, "cannot read " + path.string());
  return text;
}

}  // namespace

Result<std::string> model_fingerprint(const fs::path& given) {
  const auto located = locate_model(given);
  if (!located) return fail(located.error());
  const fs::path& model = *located;
  std::error_code error;
  const bool is_folder = fs::is_directory(model, error);
  std::vector<fs::path> files;
  if (is_folder) {
    for (const auto& entry : fs::directory_iterator(model, error)) {
      if (is_part_of_model(entry.path()) && entry.is_regular_file(error)) files.push_back(entry.path());
    }
    if (error) return fail(ErrorCode::io_failed, "cannot read " + model.string() + ": " + error.message());
    std::ranges::sort(files);
  } else {
    files.push_back(model);
  }
  std::string all;
  for (const auto& file : files) {
    const auto ends = ends_of(file);
    if (!ends) return fail(ends.error());
    if (is_folder) all += file.filename().string() + "\n";
    all += fmt::format("{:016x}\n", XXH3_64bits(ends->data(), ends->size()));
  }
  return fmt::format("{:016x}", XXH3_64bits(all.data(), all.size()));
}

}  // namespace pagoda::io
