#include "engine/text/bad_words.hpp"

#include <string_view>
#include <unordered_set>
#include <utility>

#include "engine/text/unicode.hpp"

namespace pagoda::text {
namespace {

std::string_view without_leading_space(std::string_view word) {
  for (std::size_t next = 0; next < word.size();) {
    const std::size_t begin = next;
    if (!is_white_space(next_character(word, next))) return word.substr(begin);
  }
  return {};
}

}  // namespace

Result<std::vector<TokenIds>> bad_word_tokens(const Tokenizer& tokenizer, std::span<const std::string> words) {
  constexpr const char* kParam = "bad_words";
  std::unordered_set<std::string_view> known;
  std::vector<TokenIds> all;
  for (const std::string& word : words) {
    if (!known.insert(word).second) continue;
    if (find_invalid_utf8(word) != std::string_view::npos) {
      return fail(ErrorCode::invalid_request, "bad_words: a word is not valid UTF-8", kParam);
    }
    const std::string text(without_leading_space(word));
    auto plain = tokenizer.encode(text, /*add_special_tokens=*/false);
    auto spaced = plain ? tokenizer.encode(" " + text, /*add_special_tokens=*/false) : plain;
    if (!spaced) return fail(ErrorCode::invalid_request, "bad_words: " + spaced.error().message, kParam);
    if (plain->empty()) {
      return fail(ErrorCode::invalid_request,
                  "bad_words: a word must have at least one token, but one word is only white space", kParam);
    }
    const bool is_other = spaced->size() == plain->size() && spaced->front() != plain->front();
    all.push_back(std::move(*plain));
    if (is_other) all.push_back(std::move(*spaced));
  }
  return all;
}

}  // namespace pagoda::text
