#include "engine/text/normalizer.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <utf8proc.h>

#include "engine/text/unicode.hpp"

namespace pagoda::text {
namespace {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

// Characters below U+0300 are their own composed form and never combine with the characters before them.
bool is_already_normal(std::string_view text, UnicodeForm form) {
  const std::uint8_t first_lead = form == UnicodeForm::nfc ? 0xCC : 0x80;
  return std::none_of(text.begin(), text.end(), [&](char c) { return static_cast<std::uint8_t>(c) >= first_lead; });
}

int combining_class(utf8proc_int32_t character) {
  return utf8proc_get_property(character)->combining_class;
}

// utf8proc_decompose sorts combining marks by insertion, which a hostile text makes quadratic. So this function
// decomposes the characters itself and sorts each run of marks with a stable sort.
std::vector<utf8proc_int32_t> decompose(std::string_view text, utf8proc_option_t options) {
  std::vector<utf8proc_int32_t> characters;
  characters.reserve(text.size());
  std::array<utf8proc_int32_t, 64> buffer{};
  for (std::size_t position = 0; position < text.size();) {
    const auto character = static_cast<utf8proc_int32_t>(next_character(text, position));
    int boundary_class = 0;
    const utf8proc_ssize_t size = utf8proc_decompose_char(
        character, buffer.data(), static_cast<utf8proc_ssize_t>(buffer.size()), options, &boundary_class);
    if (size < 0 || size > static_cast<utf8proc_ssize_t>(buffer.size())) {
      characters.push_back(character);
    } else {
      characters.insert(characters.end(), buffer.begin(), buffer.begin() + size);
    }
  }
  for (auto run = characters.begin(); run != characters.end();) {
    if (combining_class(*run) == 0) {
      ++run;
      continue;
    }
    const auto end = std::find_if(run, characters.end(), [](auto c) { return combining_class(c) == 0; });
    std::stable_sort(run, end, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    run = end;
  }
  return characters;
}

std::string_view strip(std::string_view text, const StripNormalizer& sides) {
  if (sides.left) {
    std::size_t begin = 0;
    for (std::size_t next = 0; next < text.size() && is_white_space(next_character(text, next)); begin = next) {
    }
    text.remove_prefix(begin);
  }
  while (sides.right && !text.empty()) {
    const std::size_t last = last_character_offset(text);
    std::size_t position = last;
    if (!is_white_space(next_character(text, position))) break;
    text = text.substr(0, last);
  }
  return text;
}

std::string lowercase(std::string_view text, std::vector<Edit>& edits) {
  std::string lower;
  lower.reserve(text.size());
  for (std::size_t position = 0; position < text.size();) {
    const std::size_t begin = position;
    const std::size_t lower_begin = lower.size();
    const char32_t character = next_character(text, position);
    if (character == 0x130) {  // the only character whose lower case has two characters
      lower += "i\u0307";
    } else {
      append_utf8(lower, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(character))));
    }
    const std::size_t lower_size = lower.size() - lower_begin;
    if (lower_size != position - begin) edits.push_back({{begin, position}, lower_size});
  }
  return lower;
}

// ASCII characters never combine with the characters before them, so a text is normalized in pieces that each begin
// with one.
Status find_form_edits(std::string_view text, UnicodeForm form, std::vector<Edit>& edits) {
  const auto is_ascii = [](char c) { return static_cast<std::uint8_t>(c) < 0x80; };
  for (std::size_t begin = 0; begin < text.size();) {
    const auto next = std::find_if(text.begin() + static_cast<std::ptrdiff_t>(begin) + 1, text.end(), is_ascii);
    const auto end = static_cast<std::size_t>(next - text.begin());
    const std::string_view piece = text.substr(begin, end - begin);
    Result<std::string> normal = to_unicode_form(piece, form);
    if (!normal) return fail(std::move(normal.error()));
    if (*normal != piece) {
      const auto same = std::ranges::mismatch(piece, *normal).in1;
      edits.push_back({{begin + static_cast<std::size_t>(same - piece.begin()), end},
                       normal->size() - static_cast<std::size_t>(same - piece.begin())});
    }
    begin = end;
  }
  return {};
}

}  // namespace

Result<Replacer> Replacer::create(const Pattern& pattern, std::string content) {
  if (pattern.text.empty()) return fail(ErrorCode::bad_config, "the pattern is empty");
  Replacer replacer;
  replacer.content_ = std::move(content);
  if (!pattern.is_regex) {
    replacer.pattern_ = pattern.text;
    return replacer;
  }
  Result<Regex> regex = Regex::compile(pattern.text);
  if (!regex) return fail(std::move(regex.error()));
  replacer.pattern_ = std::move(*regex);
  return replacer;
}

Result<std::string> Replacer::apply(std::string_view text, std::vector<Edit>* edits) const {
  std::string out;
  out.reserve(text.size());
  std::size_t copied = 0;
  const auto replace = [&](Span match) {
    out += text.substr(copied, match.begin - copied);
    out += content_;
    copied = match.end;
    if (edits != nullptr) edits->push_back({match, content_.size()});
  };
  if (const auto* literal = std::get_if<std::string>(&pattern_)) {
    for (std::size_t at = text.find(*literal); at != std::string_view::npos; at = text.find(*literal, copied)) {
      replace({at, at + literal->size()});
    }
  } else {
    std::vector<Span> matches;
    if (Status status = std::get<Regex>(pattern_).find_all(text, matches); !status) return fail(status.error());
    for (const Span& match : matches) replace(match);
  }
  out += text.substr(copied);
  return out;
}

Result<std::string> to_unicode_form(std::string_view text, UnicodeForm form) {
  if (is_already_normal(text, form)) return std::string(text);
  const bool compatible = form == UnicodeForm::nfkc || form == UnicodeForm::nfkd;
  const bool composed = form == UnicodeForm::nfc || form == UnicodeForm::nfkc;
  std::vector<utf8proc_int32_t> characters = decompose(
      text, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0)));
  if (composed) {
    const utf8proc_ssize_t size =
        utf8proc_normalize_utf32(characters.data(), static_cast<utf8proc_ssize_t>(characters.size()),
                                 static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (size < 0) return fail(ErrorCode::internal, std::string("cannot normalize the text: ") + utf8proc_errmsg(size));
    characters.resize(static_cast<std::size_t>(size));
  }
  std::string out;
  out.reserve(text.size());
  for (const utf8proc_int32_t character : characters) append_utf8(out, static_cast<char32_t>(character));
  return out;
}

Result<Normalizer> Normalizer::create(const std::vector<NormalizerSpec>& specs) {
  Normalizer normalizer;
  for (const NormalizerSpec& spec : specs) {
    if (const auto* replace = std::get_if<ReplaceNormalizer>(&spec)) {
      Result<Replacer> replacer = Replacer::create(replace->pattern, replace->content);
      if (!replacer) {
        return fail(ErrorCode::bad_config, "Replace: " + replacer.error().message, "normalizer");
      }
      normalizer.stages_.emplace_back(std::move(*replacer));
    } else if (const auto* prepend = std::get_if<PrependNormalizer>(&spec)) {
      normalizer.stages_.emplace_back(*prepend);
    } else if (const auto* unicode = std::get_if<UnicodeNormalizer>(&spec)) {
      normalizer.stages_.emplace_back(*unicode);
    } else if (const auto* sides = std::get_if<StripNormalizer>(&spec)) {
      normalizer.stages_.emplace_back(*sides);
    } else {
      normalizer.stages_.emplace_back(LowercaseNormalizer{});
    }
  }
  return normalizer;
}

Result<Normalizer::Output> Normalizer::apply(std::string_view text, std::span<const ByteRange> literals) const {
  Output output{std::string(text), true, {literals.begin(), literals.end()}};
  std::vector<Edit> edits;
  for (const Stage& stage : stages_) {
    if (output.text.empty()) break;
    const std::string& current = output.text;
    edits.clear();
    const auto to_form = [&](const UnicodeNormalizer& unicode) -> Result<std::string> {
      if (!output.literals.empty()) {
        if (Status status = find_form_edits(current, unicode.form, edits); !status) return fail(status.error());
      }
      return to_unicode_form(current, unicode.form);
    };
    const auto stripped = [&](const StripNormalizer& sides) -> Result<std::string> {
      const std::string_view kept = strip(current, sides);
      const auto begin = static_cast<std::size_t>(kept.data() - current.data());
      edits = {{{0, begin}, 0}, {{begin + kept.size(), current.size()}, 0}};
      if (begin > 0) output.keeps_start = false;
      return std::string(kept);
    };
    Result<std::string> next = std::visit(
        Overloaded{[&](const PrependNormalizer& prepend) -> Result<std::string> {
                     edits = {{{0, 0}, prepend.text.size()}};
                     return prepend.text + current;
                   },
                   [&](const Replacer& replacer) {
                     return replacer.apply(current, output.literals.empty() ? nullptr : &edits);
                   },
                   to_form, stripped,
                   [&](const LowercaseNormalizer&) -> Result<std::string> { return lowercase(current, edits); }},
        stage);
    if (!next) return fail(std::move(next.error()));
    follow_edits(edits, output.literals);
    output.text = std::move(*next);
  }
  return output;
}

}  // namespace pagoda::text
