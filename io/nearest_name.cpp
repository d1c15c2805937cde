#include "io/nearest_name.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

namespace pagoda::io {
namespace {

constexpr std::size_t kMaxLetters = 64;  ///< longest name that is compared
constexpr std::size_t kFar = std::numeric_limits<std::size_t>::max();

char plain_letter(char c) {
  if (c >= 'A' && c <= 'Z') return static_cast<char>(c - 'A' + 'a');
  return c == '-' ? '_' : c;
}

/// Returns the number of letters in which a misspelling of `known` may differ from it.
std::size_t letters_allowed(std::string_view known) {
  constexpr std::size_t kShort = 4;
  constexpr std::size_t kLong = 6;
  if (known.size() < kShort) return 0;
  return known.size() < kLong ? 1 : 2;
}

/// Returns the optimal string alignment distance, computed row by row.
std::size_t letters_between(std::string_view a, std::string_view b) {
  std::array<std::array<std::size_t, kMaxLetters + 1>, 3> rows{};
  for (std::size_t j = 0; j <= b.size(); ++j) rows[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    auto& row = rows[i % 3];
    const auto& above = rows[(i - 1) % 3];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool is_same = plain_letter(a[i - 1]) == plain_letter(b[j - 1]);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (is_same ? 0 : 1)});
      const bool is_swap = i > 1 && j > 1 && plain_letter(a[i - 1]) == plain_letter(b[j - 2]) &&
                           plain_letter(a[i - 2]) == plain_letter(b[j - 1]);
      if (is_swap) row[j] = std::min(row[j], rows[(i - 2) % 3][j - 2] + 1);
    }
  }
  return rows[a.size() % 3][b.size()];
}

/// Returns the distance between `name` and `known` in letters, or kFar if it is too large for a misspelling.
std::size_t misspelled_letters(std::string_view name, std::string_view known) {
  const auto allowed = letters_allowed(known);
  const auto longer = std::max(name.size(), known.size());
  if (longer > kMaxLetters || longer - std::min(name.size(), known.size()) > allowed) return kFar;
  const auto letters = letters_between(name, known);
  return letters <= allowed ? letters : kFar;
}

}  // namespace

bool is_misspelling(std::string_view name, std::string_view known) {
  return misspelled_letters(name, known) != kFar;
}

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> known) {
  std::string_view nearest;
  auto fewest = kFar;
  for (const auto candidate : known) {
    const auto letters = misspelled_letters(name, candidate);
    if (letters >= fewest) continue;
    fewest = letters;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace pagoda::io
