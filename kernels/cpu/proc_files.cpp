#include "kernels/cpu/proc_files.hpp"

#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>

namespace pagoda::kernels {

namespace fs = std::filesystem;

std::vector<std::string> lines_of(const fs::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(std::move(line));
  return lines;
}

std::string first_line_of(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream words(line);
  return {std::istream_iterator<std::string>(words), {}};
}

std::optional<std::size_t> number_in(std::string_view text) {
  std::size_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::size_t> number_in_file(const fs::path& path) {
  return number_in(first_line_of(path));
}

std::optional<std::size_t> number_after(const fs::path& path, std::string_view key) {
  for (const auto& line : lines_of(path)) {
    const auto words = words_of(line);
    if (words.size() >= 2 && words[0] == key) return number_in(words[1]);
  }
  return std::nullopt;
}

fs::path below_root(const fs::path& root, const fs::path& absolute) {
  return root / absolute.relative_path();
}

}  // namespace pagoda::kernels
