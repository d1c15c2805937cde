#include "engine/text/pre_tokenizer.hpp"

#include <algorithm>
#include <utility>

#include "engine/text/unicode.hpp"

namespace pagoda::text {
namespace {

// The pattern of GPT-2's published encoder.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// A part of a piece, and whether the pattern matched it. The parts of a piece cover it.
struct Part {
  Span span;
  bool matched = false;
};

// Returns the matches and the parts between them.
std::vector<Part> cover(const std::vector<Span>& matches, std::size_t size) {
  std::vector<Part> parts;
  parts.reserve(2 * matches.size() + 1);
  std::size_t end = 0;
  for (const Span& match : matches) {
    if (match.begin != end) parts.push_back({{end, match.begin}, false});
    parts.push_back({match, true});
    end = match.end;
  }
  if (end != size) parts.push_back({{end, size}, false});
  return parts;
}

template <class IsMatch>
std::vector<Span> matching_characters(std::string_view text, IsMatch is_match) {
  std::vector<Span> matches;
  for (std::size_t position = 0; position < text.size();) {
    const std::size_t begin = position;
    if (is_match(next_character(text, position))) matches.push_back({begin, position});
  }
  return matches;
}

std::vector<Span> literal_matches(std::string_view text, std::string_view literal) {
  std::vector<Span> matches;
  for (std::size_t at = text.find(literal); at != std::string_view::npos;
       at = text.find(literal, at + literal.size())) {
    matches.push_back({at, at + literal.size()});
  }
  return matches;
}

// Returns runs of word characters, and runs of characters that are neither word characters nor white space.
std::vector<Span> words_and_punctuation(std::string_view text) {
  enum class Kind { space, word, other };
  std::vector<Span> matches;
  Kind last = Kind::space;
  for (std::size_t position = 0; position < text.size();) {
    const std::size_t begin = position;
    const char32_t character = next_character(text, position);
    const Kind kind = is_word(character) ? Kind::word : is_white_space(character) ? Kind::space : Kind::other;
    if (kind != Kind::space && kind == last) {
      matches.back().end = position;
    } else if (kind != Kind::space) {
      matches.push_back({begin, position});
    }
    last = kind;
  }
  return matches;
}

// A match joins the part before it, unless that part is a match too.
std::vector<Span> merge_with_previous(const std::vector<Part>& parts) {
  std::vector<Span> spans;
  bool previous_matched = false;
  for (const Part& part : parts) {
    if (part.matched && !previous_matched && !spans.empty()) {
      spans.back().end = part.span.end;
    } else {
      spans.push_back(part.span);
    }
    previous_matched = part.matched;
  }
  return spans;
}

std::vector<Span> merge_with_next(const std::vector<Part>& parts) {
  std::vector<Span> spans;
  bool previous_matched = false;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (part->matched && !previous_matched && !spans.empty()) {
      spans.back().begin = part->span.begin;
    } else {
      spans.push_back(part->span);
    }
    previous_matched = part->matched;
  }
  std::reverse(spans.begin(), spans.end());
  return spans;
}

std::vector<Span> merge_contiguous(const std::vector<Part>& parts) {
  std::vector<Span> spans;
  bool previous_matched = false;
  for (const Part& part : parts) {
    if (part.matched == previous_matched && !spans.empty()) {
      spans.back().end = part.span.end;
    } else {
      spans.push_back(part.span);
    }
    previous_matched = part.matched;
  }
  return spans;
}

std::vector<Span> resolve(const std::vector<Part>& parts, SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::merged_with_previous:
      return merge_with_previous(parts);
    case SplitBehavior::merged_with_next:
      return merge_with_next(parts);
    case SplitBehavior::contiguous:
      return merge_contiguous(parts);
    case SplitBehavior::removed:
    case SplitBehavior::isolated:
      break;
  }
  std::vector<Span> spans;
  spans.reserve(parts.size());
  for (const Part& part : parts) {
    if (behavior == SplitBehavior::isolated || !part.matched) spans.push_back(part.span);
  }
  return spans;
}

// Replaces every piece by the parts that `find_spans` returns for it (offsets within the piece).
template <class FindSpans>
Status split_each(Pieces& pieces, FindSpans find_spans) {
  std::vector<Span> result;
  result.reserve(pieces.spans.size());
  const std::string_view buffer = pieces.buffer;
  bool first_starts = false;
  for (std::size_t i = 0; i < pieces.spans.size(); ++i) {
    const Span piece = pieces.spans[i];
    const Result<std::vector<Span>> parts = find_spans(buffer.substr(piece.begin, piece.end - piece.begin));
    if (!parts) return fail(parts.error());
    for (const Span& part : *parts) {
      if (part.begin == part.end) continue;
      if (result.empty()) first_starts = i == 0 && part.begin == 0;
      result.push_back({piece.begin + part.begin, piece.begin + part.end});
    }
  }
  pieces.at_text_start = pieces.at_text_start && first_starts;
  pieces.spans = std::move(result);
  return {};
}

template <class FindMatches>
Status split_at_matches(Pieces& pieces, SplitBehavior behavior, bool invert, FindMatches find_matches) {
  return split_each(pieces, [&](std::string_view piece) -> Result<std::vector<Span>> {
    const Result<std::vector<Span>> matches = find_matches(piece);
    if (!matches) return matches;
    std::vector<Part> parts = cover(*matches, piece.size());
    if (invert) {
      for (Part& part : parts) part.matched = !part.matched;
    }
    return resolve(parts, behavior);
  });
}

Result<std::vector<Span>> regex_matches(const Regex& regex, std::string_view text) {
  std::vector<Span> matches;
  matches.reserve(text.size() / 4);
  if (Status status = regex.find_all(text, matches); !status) return fail(status.error());
  return matches;
}

// Writes every piece anew with `write(index, piece, out)`. Text between pieces is dropped.
template <class Write>
void rewrite_each(Pieces& pieces, Write write) {
  std::string out;
  out.reserve(pieces.buffer.size() + pieces.buffer.size() / 2);
  const std::string_view buffer = pieces.buffer;
  for (std::size_t i = 0; i < pieces.spans.size(); ++i) {
    Span& span = pieces.spans[i];
    const std::size_t begin = out.size();
    write(i, buffer.substr(span.begin, span.end - span.begin), out);
    span = {begin, out.size()};
  }
  pieces.buffer = std::move(out);
}

Status split_byte_level(const ByteLevelPreTokenizer& spec, const std::optional<Regex>& regex, Pieces& pieces) {
  if (spec.add_prefix_space) {
    rewrite_each(pieces, [](std::size_t, std::string_view piece, std::string& out) {
      if (!piece.starts_with(' ')) out += ' ';
      out += piece;
    });
  }
  if (regex) {
    const Status status = split_at_matches(pieces, SplitBehavior::isolated, false,
                                           [&](std::string_view piece) { return regex_matches(*regex, piece); });
    if (!status) return status;
  }
  rewrite_each(pieces, [](std::size_t, std::string_view piece, std::string& out) {
    for (const char byte : piece) out += byte_level_character(static_cast<std::uint8_t>(byte));
  });
  return {};
}

Status split_metaspace(const MetaspacePreTokenizer& spec, Pieces& pieces) {
  const bool at_text_start = pieces.at_text_start;
  rewrite_each(pieces, [&](std::size_t index, std::string_view piece, std::string& out) {
    const bool wanted = spec.prepend_scheme == PrependScheme::always ||
                        (spec.prepend_scheme == PrependScheme::first && index == 0 && at_text_start);
    if (wanted && !piece.starts_with(' ') && !piece.starts_with(spec.replacement)) out += spec.replacement;
    for (const char c : piece) {
      if (c == ' ') {
        out += spec.replacement;
      } else {
        out += c;
      }
    }
  });
  if (!spec.split) return {};
  return split_at_matches(
      pieces, SplitBehavior::merged_with_next, false,
      [&](std::string_view piece) -> Result<std::vector<Span>> { return literal_matches(piece, spec.replacement); });
}

}  // namespace

Result<PreTokenizer> PreTokenizer::create(const std::vector<PreTokenizerSpec>& specs) {
  PreTokenizer pre_tokenizer;
  for (const PreTokenizerSpec& spec : specs) {
    Stage stage{spec, std::nullopt};
    std::string_view pattern;
    if (const auto* byte_level = std::get_if<ByteLevelPreTokenizer>(&spec)) {
      if (byte_level->use_regex) pattern = kGpt2Pattern;
    } else if (const auto* split_spec = std::get_if<SplitPreTokenizer>(&spec)) {
      if (split_spec->pattern.text.empty()) {
        return fail(ErrorCode::bad_config, "Split: the pattern is empty", "pre_tokenizer");
      }
      if (split_spec->pattern.is_regex) pattern = split_spec->pattern.text;
    }
    if (!pattern.empty()) {
      Result<Regex> regex = Regex::compile(pattern);
      if (!regex) return fail(ErrorCode::bad_config, "Split: " + regex.error().message, "pre_tokenizer");
      stage.regex = std::move(*regex);
    }
    pre_tokenizer.stages_.push_back(std::move(stage));
  }
  return pre_tokenizer;
}

Status PreTokenizer::split(const Stage& stage, Pieces& pieces) {
  using Matches = Result<std::vector<Span>>;
  if (const auto* byte_level = std::get_if<ByteLevelPreTokenizer>(&stage.spec)) {
    return split_byte_level(*byte_level, stage.regex, pieces);
  }
  if (const auto* metaspace = std::get_if<MetaspacePreTokenizer>(&stage.spec)) {
    return split_metaspace(*metaspace, pieces);
  }
  if (const auto* pattern = std::get_if<SplitPreTokenizer>(&stage.spec)) {
    return split_at_matches(pieces, pattern->behavior, pattern->invert, [&](std::string_view piece) -> Matches {
      return stage.regex ? regex_matches(*stage.regex, piece) : literal_matches(piece, pattern->pattern.text);
    });
  }
  if (const auto* digits = std::get_if<DigitsPreTokenizer>(&stage.spec)) {
    return split_at_matches(pieces, digits->individual_digits ? SplitBehavior::isolated : SplitBehavior::contiguous,
                            false,
                            [](std::string_view piece) -> Matches { return matching_characters(piece, is_numeric); });
  }
  if (const auto* punctuation = std::get_if<PunctuationPreTokenizer>(&stage.spec)) {
    return split_at_matches(pieces, punctuation->behavior, false, [](std::string_view piece) -> Matches {
      return matching_characters(piece, is_punctuation);
    });
  }
  if (std::holds_alternative<WhitespaceSplitPreTokenizer>(stage.spec)) {
    return split_at_matches(pieces, SplitBehavior::removed, false, [](std::string_view piece) -> Matches {
      return matching_characters(piece, is_white_space);
    });
  }
  return split_each(pieces, [](std::string_view piece) -> Matches { return words_and_punctuation(piece); });
}

Result<Pieces> PreTokenizer::apply(std::string text, bool at_text_start) const {
  Pieces pieces;
  if (!text.empty()) pieces.spans.push_back({0, text.size()});
  pieces.buffer = std::move(text);
  pieces.at_text_start = at_text_start;
  for (const Stage& stage : stages_) {
    if (Status status = split(stage, pieces); !status) return fail(status.error());
  }
  return pieces;
}

}  // namespace pagoda::text
