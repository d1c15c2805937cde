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

constexpr std::uintmax_t kEndBytes = 64 << 10;    // bytes that are read at each end of a file
constexpr std::uintmax_t kSamples = 64;           // parts all over a file
constexpr std::uintmax_t kSampleBytes = 4 << 10;  // bytes that are read of each

bool is_part_of_model(const fs::path& file) {
  constexpr std::array<std::string_view, 4> kEndings{".safetensors", ".bin", ".gguf", ".model"};
  constexpr std::array<std::string_view, 5> kNames{"config.json", "tokenizer.json", "tokenizer_config.json",
                                                   "vocab.json", "merges.txt"};
  return std::ranges::find(kEndings, file.extension().string()) != kEndings.end() ||
         std::ranges::find(kNames, file.filename().string()) != kNames.end();
}

/// Returns the size of a file and the bytes at its two ends, or with `samples` of parts all over it.
Result<std::string> parts_of(const fs::path& path, std::uintmax_t samples) {
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
  if (samples == 0) {
    read(0, std::min(size, kEndBytes));
    if (size > kEndBytes) read(size - std::min(size - kEndBytes, kEndBytes), std::min(size - kEndBytes, kEndBytes));
  }
  for (std::uintmax_t i = 0; i < samples; ++i) {
    const std::uintmax_t from = size / samples * i;
    read(from, std::min(kSampleBytes, size - from));
  }
  if (!file) return fail(ErrorCode::io_failed, "cannot read " + path.string());
  return text;
}

std::string hash_of(std::string_view text) {
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

tl::unexpected<Error> cannot_read(const fs::path& path, const std::error_code& error) {
  return fail(ErrorCode::io_failed, "cannot read " + path.string() + ": " + error.message());
}

/// Returns the files of a folder that are part of its model.
Result<std::vector<fs::path>> files_of_folder(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (is_part_of_model(entry.path()) && entry.is_regular_file(error)) files.push_back(entry.path());
  }
  if (error) return cannot_read(folder, error);
  std::ranges::sort(files);
  return files;
}

/// Returns the file, or all parts if it is the first part of a split GGUF file.
Result<std::vector<fs::path>> parts_of_file(const fs::path& file) {
  const std::string name = file.filename().string();
  const auto end_of_stem = name.rfind("-00001-of-");
  if (end_of_stem == std::string::npos) return std::vector<fs::path>{file};
  const std::string stem = name.substr(0, end_of_stem);
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(fs::absolute(file, error).parent_path(), error)) {
    if (entry.path().filename().string().starts_with(stem) && entry.is_regular_file(error)) {
      files.push_back(entry.path());
    }
  }
  if (error) return cannot_read(file, error);
  std::ranges::sort(files);
  return files;
}

}  // namespace

Result<std::string> model_fingerprint(const fs::path& given) {
  const auto located = locate_model(given);
  if (!located) return fail(located.error());
  const fs::path& model = *located;
  std::error_code error;
  const bool is_folder = fs::is_directory(model, error);
  const auto files = is_folder ? files_of_folder(model) : Result<std::vector<fs::path>>({model});
  if (!files) return fail(files.error());
  std::string all;
  for (const auto& file : *files) {
    const auto ends = parts_of(file, 0);
    if (!ends) return fail(ends.error());
    if (is_folder) all += file.filename().string() + "\n";
    all += hash_of(*ends) + "\n";
  }
  return hash_of(all);
}

Result<std::string> model_version(const fs::path& given) {
  auto version = model_fingerprint(given);
  if (!version) return version;
  const auto model = locate_model(given);
  if (!model) return fail(model.error());
  std::error_code error;
  const auto files = fs::is_directory(*model, error) ? files_of_folder(*model) : parts_of_file(*model);
  if (!files) return fail(files.error());
  for (const auto& file : *files) {
    const auto samples = parts_of(file, kSamples);
    if (!samples) return fail(samples.error());
    const auto written = fs::last_write_time(file, error);
    if (error) return cannot_read(file, error);
    *version +=
        fmt::format("\n{} {} {}", file.filename().string(), written.time_since_epoch().count(), hash_of(*samples));
  }
  return version;
}

}  // namespace pagoda::io
