#pragma once

#include <memory>
#include <span>
#include <string>

#include "engine/text/tokenizer.hpp"
#include "engine/types.hpp"

namespace pagoda::text {

/// The text of one growing sequence, token by token. Copy it to fork the sequence.
///
/// All pushes and the flush together give what Tokenizer::decode adds for the generated ids behind the prompt: a first
/// word keeps its space when the prompt has text, and a character that the prompt leaves unfinished can be completed.
/// A push gives whole characters only, and is O(1) amortised per byte of text.
class IncrementalDetokenizer {
 public:
  /// `prompt` is the prompt's ids or their end; only the last few that are not skipped count. Without
  /// `spaces_between_special_tokens`, as vLLM has it, an added token right behind another is written as it stands in
  /// the vocabulary, without the space that the decoder may put before it.
  IncrementalDetokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens,
                         std::span<const TokenId> prompt, bool spaces_between_special_tokens = true);

  /// The text that `id` completes; may be empty. An id that no token has adds nothing.
  std::string push(TokenId id);
  /// The text still held back, at the end of the sequence. Nothing may be pushed after it.
  std::string flush();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_tokens_;
  bool spaces_between_special_tokens_;
  bool is_behind_added_ = false;  ///< the last token was an added one; without spaces_between_special_tokens only
  TokenDecoder::State state_;
};

}  // namespace pagoda::text
