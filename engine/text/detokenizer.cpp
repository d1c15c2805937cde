#include "engine/text/detokenizer.hpp"

#include <utility>

namespace pagoda::text {
namespace {

// Enough tokens for the longest unfinished character (three bytes, a token each) and for text before the first word.
constexpr int kContextTokens = 8;

}  // namespace

IncrementalDetokenizer::IncrementalDetokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens,
                                               std::span<const TokenId> prompt, bool spaces_between_special_tokens)
    : tokenizer_(std::move(tokenizer)),
      skip_special_tokens_(skip_special_tokens),
      spaces_between_special_tokens_(skip_special_tokens || spaces_between_special_tokens),
      state_(tokenizer_->start_decoding()) {
  std::size_t begin = prompt.size();
  for (int counted = 0; begin > 0 && counted < kContextTokens; --begin) {
    if (!skip_special_tokens_ || !tokenizer_->is_special(prompt[begin - 1])) ++counted;
  }
  std::string context;
  for (const TokenId id : prompt.subspan(begin)) tokenizer_->decode_next(state_, id, skip_special_tokens_, context);
  tokenizer_->leave_context(state_);
}

std::string IncrementalDetokenizer::push(TokenId id) {
  std::string text;
  tokenizer_->decode_next(state_, id, skip_special_tokens_, text);
  if (spaces_between_special_tokens_) return text;
  const auto added = tokenizer_->added_text(id);
  const bool is_in_row = std::exchange(is_behind_added_, added.has_value()) && added;
  return is_in_row ? std::string(*added) : text;
}

std::string IncrementalDetokenizer::flush() {
  std::string text;
  tokenizer_->finish_decoding(state_, text);
  return text;
}

}  // namespace pagoda::text
