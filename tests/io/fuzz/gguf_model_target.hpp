#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "io/model_files/gguf/folder_from_gguf.hpp"
#include "io/model_files/gguf/folder_tokenizer_of_gguf.hpp"
#include "io/model_files/gguf/gguf_config.hpp"
#include "io/model_files/gguf/gguf_file.hpp"
#include "io/model_files/gguf/gguf_model_parts.hpp"
#include "io/model_files/gguf/gguf_tokenizer.hpp"
#include "io/model_files/gguf/gguf_weights.hpp"
#include "io/model_files/tokenizer_json.hpp"
#include "tests/io/fuzz/fuzz_folder.hpp"
#include "tests/io/fuzz/tokenizer_target.hpp"
#include "tests/io/model_files/gguf_writer.hpp"

namespace pagoda::io::testing {

/// GGUF files as a text tells of them, one thing a line:
///
///   file NAME              what follows is of the file NAME; m.gguf where there is no such line before
///   tensor NAME TYPE A B   zeros [A, B] of the type with this number; of up to 64 KiB, else there are no data
///   KEY TYPE VALUE         TYPE: s (string), i, u (32 bits), I, U (64 bits), h (uint16), f (float32), b (boolean), and
///                          as, ai, af, ab (bytes): arrays, whose elements have a byte 0x1F between them
///
/// A byte 0x1E in a key or a string is a line feed.
class DescribedGgufs {
 public:
  explicit DescribedGgufs(std::string_view description) {
    while (!description.empty()) {
      const std::size_t end = std::min(description.find('\n'), description.size());
      add_line(description.substr(0, end));
      description.remove_prefix(std::min(end + 1, description.size()));
    }
    if (files_.empty()) files_.emplace_back("m.gguf", GgufWriter());
  }

  /// Returns the path of the first file.
  std::filesystem::path write(const FuzzFolder& folder) const {
    for (const auto& [name, writer] : files_) writer.write(folder.path() / name);
    return folder.path() / files_.front().first;
  }

 private:
  static constexpr std::size_t kMaxFiles = 4;

  static std::string_view take_word(std::string_view& line) {
    const std::size_t end = std::min(line.find(' '), line.size());
    const std::string_view word = line.substr(0, end);
    line.remove_prefix(std::min(end + 1, line.size()));
    return word;
  }

  static std::string text_of(std::string_view written) {
    std::string text(written);
    std::ranges::replace(text, '\x1e', '\n');
    return text;
  }

  template <class T>
  static T number_of(std::string_view written) {
    T number{};
    std::from_chars(written.data(), written.data() + written.size(), number);
    return number;
  }

  template <class T>
  static std::vector<T> list_of(std::string_view written) {
    std::vector<T> list;
    while (!written.empty()) {
      const std::size_t end = std::min(written.find('\x1f'), written.size());
      if constexpr (std::is_same_v<T, std::string>) {
        list.push_back(text_of(written.substr(0, end)));
      } else {
        list.push_back(number_of<T>(written.substr(0, end)));
      }
      written.remove_prefix(std::min(end + 1, written.size()));
    }
    return list;
  }

  void add_line(std::string_view line) {
    const std::string_view first = take_word(line);
    if (first == "file") {
      std::string name(line.substr(0, 64));
      const auto is_plain = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
      };
      std::erase_if(name, [&](char c) { return !is_plain(c); });
      if (files_.size() < kMaxFiles && !name.empty() && name.front() != '.') files_.emplace_back(name, GgufWriter());
      return;
    }
    if (files_.empty()) files_.emplace_back("m.gguf", GgufWriter());
    GgufWriter& file = files_.back().second;
    if (first == "tensor") return add_tensor(line, file);
    const std::string key = text_of(first);
    const std::string_view type = take_word(line);
    if (type == "s") file.add(key, text_of(line));
    if (type == "i") file.add(key, number_of<std::int32_t>(line));
    if (type == "u") file.add(key, number_of<std::uint32_t>(line));
    if (type == "I") file.add(key, number_of<std::int64_t>(line));
    if (type == "U") file.add(key, number_of<std::uint64_t>(line));
    if (type == "h") file.add(key, number_of<std::uint16_t>(line));
    if (type == "f") file.add(key, number_of<float>(line));
    if (type == "b") file.add(key, line == "true");
    if (type == "as") file.add(key, list_of<std::string>(line));
    if (type == "ai") file.add(key, list_of<std::int32_t>(line));
    if (type == "af") file.add(key, list_of<float>(line));
    if (type == "ab") file.add(key, list_of<std::uint8_t>(line));
  }

  static void add_tensor(std::string_view line, GgufWriter& file) {
    constexpr std::uint64_t kMaxBytes = 64 << 10;
    const std::string name = text_of(take_word(line));
    const auto type = number_of<std::uint32_t>(take_word(line));
    std::vector<std::uint64_t> shape;
    std::uint64_t bytes = sizeof(float);
    while (!line.empty() && shape.size() < 5) {
      shape.push_back(number_of<std::uint64_t>(take_word(line)));
      bytes = shape.back() > kMaxBytes ? kMaxBytes + 1 : std::min(bytes * shape.back(), kMaxBytes + 1);
    }
    file.add_tensor(name, type, shape, std::string(bytes > kMaxBytes ? 0 : bytes, '\0'));
  }

  std::vector<std::pair<std::string, GgufWriter>> files_;
};

/// What becomes of a file in a folder can be read there.
inline void try_as_folder(const std::shared_ptr<const GgufFile>& file) {
  const auto tokenizer = folder_tokenizer_of_gguf(*file);
  if (!tokenizer) check_error(tokenizer.error());
  if (tokenizer && tokenizer->contains("tokenizer.json")) {
    const auto spec = parse_tokenizer_json(tokenizer->at("tokenizer.json"), "tokenizer.json");
    PAGODA_ASSERT(spec.has_value() && text::Tokenizer::create(*spec), "what is written can be read");
  }
  const auto parts = folder_parts_of_gguf(file);
  if (!parts) return check_error(parts.error());
  std::vector<std::byte> memory;
  for (const auto& tensor : parts->tensors) {
    PAGODA_ASSERT(tensor.data(memory).size() == tensor.bytes, "a tensor has its size");
  }
}

/// Reads the files that `description` tells of as a model. Whatever they are, there are one-line errors or parts of a
/// model that work.
inline void try_gguf_model(std::string_view description) {
  constexpr std::size_t kMaxBytes = std::size_t{1} << 18;
  static const FuzzFolder folder;
  if (description.empty() || description.size() > kMaxBytes) return;
  folder.clear();
  const DescribedGgufs described(description);
  const auto file = GgufFile::open(described.write(folder));
  if (!file) return check_error(file.error());
  const auto check = [](const auto& result) {
    if (!result) check_error(result.error());
  };
  check(read_gguf_sampling_defaults(**file));
  check(gguf_special_tokens(**file));
  check(gguf_parts_of_file(*file));
  const auto tokenizer = load_gguf_tokenizer(**file);
  check(tokenizer);
  if (tokenizer) try_tokenizer(*tokenizer);
  const auto spec = read_gguf_spec(**file);
  check(spec);
  const auto weights = GgufWeights::open(*file);
  check(weights);
  try_as_folder(*file);
  if (!spec || !weights) return;
  PAGODA_ASSERT((*weights)->facts().num_parameters >= 0, "parameters are counted");
  const auto model = spec->build(**weights);
  check(model);
  if (model) check((*weights)->check_all_used(*spec));
}

}  // namespace pagoda::io::testing
