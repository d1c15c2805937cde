#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

namespace pagoda::io::testing {

/// What the files of a folder hold, by name; of those with this extension where one is given.
inline std::vector<std::string> texts_of_files(const std::filesystem::path& folder, const std::string& extension = {}) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (extension.empty() || entry.path().extension() == extension) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  std::vector<std::string> texts;
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    texts.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return texts;
}

/// The seeds of a fuzz target: what is in tests/io/fuzz/corpus/`target`.
inline std::vector<std::string> fuzz_seeds(const std::string& target) {
  return texts_of_files(std::filesystem::path(PAGODA_SOURCE_DIR) / "tests" / "io" / "fuzz" / "corpus" / target);
}

/// Flips, drops, repeats, swaps or puts in some of `pieces`, cuts off: a few changes at random places.
inline std::string mutated(std::string text, const std::vector<std::string>& pieces, std::mt19937& rng) {
  const auto pick = [&](std::size_t bound) {
    return static_cast<std::size_t>(rng()) % std::max<std::size_t>(bound, 1);
  };
  for (std::size_t changes = 1 + pick(4); changes > 0 && !text.empty(); --changes) {
    const std::size_t at = pick(text.size());
    const std::size_t size = std::min(1 + pick(12), text.size() - at);
    switch (pick(6)) {
      case 0:
        text[at] = static_cast<char>(rng());
        break;
      case 1:
        text.erase(at, size);
        break;
      case 2:
        text.insert(at, text.substr(pick(text.size()), size));
        break;
      case 3:
        text.replace(at, size, pieces[pick(pieces.size())]);
        break;
      case 4:
        text.insert(at, pieces[pick(pieces.size())]);
        break;
      default:
        text.resize(at);
        break;
    }
  }
  return text;
}

}  // namespace pagoda::io::testing
