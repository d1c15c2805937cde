#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/text/normalizer.hpp"
#include "engine/text/tokenizer_spec.hpp"
#include "kernels/result.hpp"

namespace pagoda::text {

/// Turns token strings into text, one token at a time. All pushes and the flush together give exactly the text that the
/// decoders of the `tokenizers` package give for the whole list. Immutable; a State holds the data of a decoding in
/// progress.
///
/// Text is held back only as long as later tokens can still change it: an unfinished character, a run of byte-fallback
/// tokens (one bad byte turns its whole run into U+FFFD), the start of a possible match of a Replace after Fuse,
/// characters that a Strip at the end may drop. The work is O(1) amortised per byte.
class TokenDecoder {
 public:
  struct StageState {
    std::string held;           ///< bytes that cannot be passed on yet
    std::uint32_t checked = 0;  ///< in a byte run: number of held bytes that are whole characters
    std::uint32_t context = 0;  ///< number of held bytes that belong to the text before leave_context()
    std::uint32_t stripped = 0;
    bool started = false;  ///< whether it has seen a token, or has passed the start where it strips
    bool broken = false;   ///< in a byte run: whether it cannot become UTF-8 any more
  };
  /// Copyable; a few words for each decoder.
  using State = std::vector<StageState>;

  /// `specs`: as in TokenizerSpec::decoders. Error: bad_config for a bad pattern; unsupported for an order of decoders
  /// that cannot be decoded token by token.
  static Result<TokenDecoder> create(const std::optional<std::vector<DecoderSpec>>& specs);

  State start() const;
  /// Appends the text that `token` completes to `out`.
  void push(State& state, std::string_view token, std::string& out) const;
  /// Appends the text that is still held back. Ends the list; nothing may be pushed to `state` after it.
  void flush(State& state, std::string& out) const;
  /// Declares all tokens so far as context: text that comes from them alone is not given out any more. Bytes of an
  /// unfinished character stay, since the next token may complete it.
  void leave_context(State& state) const;
  /// Returns the bytes that a token stands for after other tokens; nothing if the other tokens can change them (Strip
  /// within a text, tokens that are joined by spaces).
  std::optional<std::string> bytes(std::string_view token) const;

 private:
  struct JoinStage {
    std::string_view separator;
  };
  using Stage = std::variant<ByteLevelDecoder, ReplaceDecoder, ByteFallbackDecoder, FuseDecoder, StripDecoder,
                             MetaspaceDecoder, JoinStage>;

  Status check_order() const;
  void push_token(std::size_t stage, State& state, std::string token, std::string& out) const;
  void push_text(std::size_t stage, State& state, std::string text, std::string& out) const;
  void push_byte_token(std::size_t stage, State& state, char byte, std::string& out) const;
  void end_byte_run(std::size_t stage, State& state, std::string& out) const;
  std::string replace(std::size_t stage, std::string_view text) const;
  std::string replace_in_stream(std::size_t stage, StageState& state, std::string_view text, bool at_end) const;

  std::vector<Stage> stages_;
  std::vector<std::optional<Replacer>> replacers_;  // one for each stage, set for Replace
  std::size_t fuse_ = 0;                            // the stage that joins the tokens; later stages see one text
};

}  // namespace pagoda::text
