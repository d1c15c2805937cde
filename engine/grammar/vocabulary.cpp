#include "engine/grammar/vocabulary.hpp"

#include <algorithm>

#include "engine/grammar/limits.hpp"
#include "engine/text/unicode.hpp"
#include "kernels/sample.hpp"

namespace pagoda::grammar {
namespace {

constexpr std::uint8_t kFirstOther = 0x80;  ///< first byte that is not ASCII

bool is_continuation(char c) {
  return (static_cast<std::uint8_t>(c) & 0xC0U) == 0x80;
}

bool is_of(const CharacterClass& characters, std::string_view token) {
  bool has_others = false;
  for (const char c : token) {
    const auto byte = static_cast<std::uint8_t>(c);
    if (byte >= kFirstOther) {
      has_others = true;
    } else if ((characters.ascii[byte / 64U] >> (byte % 64U) & 1U) == 0) {
      return false;
    }
  }
  return !has_others || (characters.has_all_others && text::find_invalid_utf8(token) == std::string_view::npos);
}

}  // namespace

TokenTrie::TokenTrie(std::span<const std::pair<std::string_view, TokenId>> sorted) {
  std::vector<std::size_t> path;
  std::string_view previous;
  const auto close = [&](std::size_t depth) {
    for (; path.size() > depth; path.pop_back()) nodes_[path.back()].end = static_cast<std::uint32_t>(nodes_.size());
  };
  for (const auto& [bytes, token] : sorted) {
    const auto differ = std::ranges::mismatch(bytes, previous).in1;
    close(static_cast<std::size_t>(differ - bytes.begin()));
    while (path.size() < bytes.size()) {
      const std::size_t depth = path.size();
      path.push_back(nodes_.size());
      nodes_.push_back({.first_token = static_cast<std::uint32_t>(tokens_.size()),
                        .depth = static_cast<std::uint32_t>(depth),
                        .byte = static_cast<std::uint8_t>(bytes[depth])});
    }
    tokens_.push_back(token);
    height_ = std::max(height_, bytes.size());
    previous = bytes;
  }
  close(0);
  nodes_.push_back({.first_token = static_cast<std::uint32_t>(tokens_.size())});
}

Vocabulary::Vocabulary(const std::vector<std::string>& tokens, TokenIds ends)
    : size_(static_cast<std::int64_t>(tokens.size())), ends_(std::move(ends)) {
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    begins_.push_back(static_cast<std::uint32_t>(bytes_.size()));
    if (!is_end(static_cast<TokenId>(id))) bytes_ += tokens[id];
  }
  begins_.push_back(static_cast<std::uint32_t>(bytes_.size()));
  for (TokenId token = 0; token < static_cast<TokenId>(size_); ++token) {
    const std::string_view text = bytes(token);
    if (text.empty()) continue;
    sorted_.emplace_back(text, token);
    if (text::find_invalid_utf8(text) == std::string_view::npos) {
      const auto others = std::ranges::count_if(text, is_continuation);
      lengths_.push_back({token, static_cast<std::uint32_t>(text.size()) - static_cast<std::uint32_t>(others)});
    }
  }
  std::ranges::sort(sorted_);
  trie_ = TokenTrie(sorted_);
  std::ranges::stable_sort(lengths_, std::ranges::greater{}, &TokenLength::num_characters);
}

bool Vocabulary::is_end(TokenId token) const {
  return std::ranges::find(ends_, token) != ends_.end();
}

const TokenSlice* Vocabulary::slice(const CharacterClass& characters) const {
  const std::lock_guard lock(mutex_);
  for (const auto& known : slices_) {
    if (known->characters == characters) return known.get();
  }
  if (slices_.size() == kMaxSlices) return nullptr;
  auto made = std::make_unique<TokenSlice>();
  made->characters = characters;
  made->mask.resize(kernels::mask_words(size_));
  std::vector<std::pair<std::string_view, TokenId>> others;
  for (const auto& one : sorted_) {
    if (!is_of(characters, one.first)) {
      others.push_back(one);
      continue;
    }
    const auto id = static_cast<std::size_t>(one.second);
    made->mask[id / 32] |= std::uint32_t{1} << (id % 32);
  }
  made->others = TokenTrie(others);
  return slices_.emplace_back(std::move(made)).get();
}

}  // namespace pagoda::grammar
