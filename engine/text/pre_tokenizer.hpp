#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/text/regex.hpp"
#include "engine/text/tokenizer_spec.hpp"
#include "kernels/result.hpp"

namespace pagoda::text {

/// Text cut into pieces. The pieces stand in order in one buffer and do not overlap; none is empty.
struct Pieces {
  std::string buffer;
  std::vector<Span> spans;
  bool at_text_start = false;  ///< whether the first piece starts where the whole input started
};

/// All the pre-tokenizers of a tokenizer, in order. Immutable.
class PreTokenizer {
 public:
  static Result<PreTokenizer> create(const std::vector<PreTokenizerSpec>& specs);
  /// Cuts `text`, which must be valid UTF-8. `at_text_start`: whether it starts where the whole input started. Error:
  /// as Regex::find_all.
  Result<Pieces> apply(std::string text, bool at_text_start) const;

 private:
  struct Stage {
    PreTokenizerSpec spec;
    std::optional<Regex> regex;
  };
  static Status split(const Stage& stage, Pieces& pieces);

  std::vector<Stage> stages_;
};

}  // namespace pagoda::text
