#include "io/serving/nearest_model.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "io/serving/served_models.hpp"

namespace pagoda::serving {
namespace {

constexpr std::size_t kMaxLetters = 256;

/// Returns the part of a model's name that is compared: its last part, without the tag, in lower case.
std::string essence_of(std::string_view name) {
  name.remove_prefix(name.find_last_of('/') == name.npos ? 0 : name.find_last_of('/') + 1);
  std::string essence(name.substr(0, name.find(':')));
  for (char& c : essence) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '_' || c == ' ') c = '-';
  }
  return essence;
}

/// Returns the optimal string alignment distance: changed, added, missing and swapped letters.
std::size_t letters_that_differ(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  std::vector<std::size_t> above = row;
  std::vector<std::size_t> two_above = row;
  for (std::size_t i = 0; i < a.size(); ++i) {
    two_above.swap(above);
    above.swap(row);
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = above[j] + (a[i] == b[j] ? 0 : 1);
      row[j + 1] = std::min({above[j + 1] + 1, row[j] + 1, changed});
      const bool is_swap = i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j];
      if (is_swap) row[j + 1] = std::min(row[j + 1], two_above[j - 1] + 1);
    }
  }
  return row.back();
}

}  // namespace

std::string_view nearest_model(std::string_view name, std::span<const std::string> served) {
  constexpr std::size_t kMinPart = 4;  // shortest name, in letters, that may match as a part of the other
  const std::string wanted = essence_of(name);
  std::string_view nearest;
  auto fewest = std::numeric_limits<std::size_t>::max();
  if (wanted.empty() || wanted.size() > kMaxLetters) return nearest;
  for (const std::string& candidate : served) {
    const std::string known = essence_of(candidate);
    if (known.empty() || known.size() > kMaxLetters) continue;
    const auto& [shorter, longer] =
        std::minmax(wanted, known, [](const auto& a, const auto& b) { return a.size() < b.size(); });
    const bool contains = shorter.size() >= kMinPart && longer.find(shorter) != std::string::npos;
    const std::size_t letters = letters_that_differ(wanted, known);
    if ((!contains && letters > longer.size() / 4) || letters >= fewest) continue;
    fewest = letters;
    nearest = candidate;
  }
  return nearest;
}

std::string did_you_mean(std::string_view name, std::span<const std::string> served, std::string_view mark) {
  const auto nearest = nearest_model(name, served);
  if (nearest.empty()) return {};
  return " Did you mean " + std::string(mark) + std::string(nearest) + std::string(mark) + "?";
}

std::string did_you_mean(std::string_view name, const ServedModels& models, std::string_view mark) {
  return did_you_mean(name, models.names(), mark);
}

}  // namespace pagoda::serving
