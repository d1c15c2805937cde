#pragma once

#include <memory>
#include <span>
#include <string>

#include "engine/text/tokenizer.hpp"
#include "engine/types.hpp"

namespace pagoda::text {

/// Makes the text of one growing sequence, token by token. Copy it to fork the sequence.
///
/// All pushes and the flush together give the text that Tokenizer::decode adds for the generated ids after the prompt.
/// A first word keeps its space when the prompt has text, and a generated token can complete a character that the
/// prompt leaves unfinished. A push returns only whole characters, and is O(1) amortised per byte of text.
class IncrementalDetokenizer {
 public:
  /// `prompt`: the prompt's ids or the last of them; only the last few that are not skipped count. Without
  /// `spaces_between_special_tokens`, an added token right after another is written as it stands in the vocabulary,
  /// without the space that the decoder may put before it (as in vLLM).
  IncrementalDetokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens,
                         std::span<const TokenId> prompt, bool spaces_between_special_tokens = true);

  /// Returns the text that `id` completes, which may be empty. An id that no token has adds nothing.
  std::string push(TokenId id);
  /// Returns the text that is still held back at the end of the sequence. Nothing may be pushed after it.
  std::string flush();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_tokens_;
  bool spaces_between_special_tokens_;
  /// Whether the last token was an added one; kept only without spaces_between_special_tokens.
  bool is_behind_added_ = false;
  TokenDecoder::State state_;
};

}  // namespace pagoda::text
