#pragma once

#include <algorithm>
#include <initializer_list>
#include <string_view>

namespace pagoda::grammar {

/// Returns whether a list of keywords has the word.
template <class Words = std::initializer_list<std::string_view>>
bool is_one_of(std::string_view word, const Words& words) {
  return std::ranges::find(words, word) != words.end();
}

}  // namespace pagoda::grammar
