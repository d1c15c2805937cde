#include "engine/text/token_decoder.hpp"

#include <algorithm>
#include <utility>

#include "engine/text/unicode.hpp"

namespace pagoda::text {
namespace {

// Returns the byte that a token like "<0x0A>" stands for, or -1.
int fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
  };
  const int high = digit(token[3]);
  const int low = digit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

// Returns the bytes that a token of visible characters stands for. A token with any other character stands for itself.
std::string byte_level_bytes(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  for (std::size_t position = 0; position < token.size();) {
    const int byte = byte_level_byte(next_character(token, position));
    if (byte < 0) return std::string(token);
    bytes.push_back(static_cast<char>(static_cast<std::uint8_t>(byte)));
  }
  return bytes;
}

std::string strip(std::string_view token, const StripDecoder& spec) {
  for (int i = 0; i < spec.start && token.starts_with(spec.content); ++i) token.remove_prefix(spec.content.size());
  for (int i = 0; i < spec.stop && token.ends_with(spec.content); ++i) token.remove_suffix(spec.content.size());
  return std::string(token);
}

std::string from_metaspace(std::string_view token, const MetaspaceDecoder& spec, bool is_first) {
  const bool drop = is_first && spec.prepend_scheme != PrependScheme::never;
  std::string text;
  text.reserve(token.size());
  for (std::size_t position = 0; position < token.size();) {
    const std::size_t begin = position;
    next_character(token, position);
    const std::string_view character = token.substr(begin, position - begin);
    if (character != spec.replacement) {
      text += character;
    } else if (!drop) {
      text += ' ';
    }
  }
  return text;
}

// Returns the size of the longest end of `text` that is a start of `pattern`, but not all of it.
std::size_t overlap(std::string_view text, std::string_view pattern) {
  for (std::size_t size = std::min(text.size(), pattern.size() - 1); size > 0; --size) {
    if (text.ends_with(pattern.substr(0, size))) return size;
  }
  return 0;
}

// Returns the whole characters of held + text, with U+FFFD for bytes that cannot become one.
std::string lossy_utf8(TokenDecoder::StageState& state, std::string_view text, bool at_end) {
  state.held += text;
  const std::string_view held = state.held;
  std::string out;
  std::size_t done = 0;
  while (done < held.size()) {
    const Utf8Unit unit = first_utf8_unit(held.substr(done));
    if (unit.status == Utf8Status::incomplete && !at_end) break;
    if (unit.status == Utf8Status::complete) {
      out += held.substr(done, unit.size);
    } else if (done + unit.size > state.context) {
      out += kReplacementCharacter;
    }
    done += unit.size;
  }
  state.context -= static_cast<std::uint32_t>(std::min<std::size_t>(done, state.context));
  state.held.erase(0, done);
  return out;
}

// Drops the first spec.start and the last spec.stop characters of a text that arrives in parts.
std::string strip_in_stream(TokenDecoder::StageState& state, const StripDecoder& spec, std::string_view text) {
  while (!state.started && text.starts_with(spec.content) && state.stripped < static_cast<std::uint32_t>(spec.start)) {
    text.remove_prefix(spec.content.size());
    ++state.stripped;
  }
  if (text.empty()) return {};
  state.started = true;
  std::string all = std::exchange(state.held, {});
  all += text;
  std::size_t keep = all.size();
  for (int i = 0; i < spec.stop && std::string_view(all).substr(0, keep).ends_with(spec.content); ++i) {
    keep -= spec.content.size();
  }
  state.held = all.substr(keep);
  all.resize(keep);
  return all;
}

std::uint32_t size_of_whole_characters(std::string_view bytes, std::size_t from) {
  while (from < bytes.size()) {
    const Utf8Unit unit = first_utf8_unit(bytes.substr(from));
    if (unit.status != Utf8Status::complete) break;
    from += unit.size;
  }
  return static_cast<std::uint32_t>(from);
}

}  // namespace

Result<TokenDecoder> TokenDecoder::create(const std::optional<std::vector<DecoderSpec>>& specs) {
  TokenDecoder decoder;
  if (specs) {
    for (const DecoderSpec& spec : *specs) {
      std::optional<Replacer> replacer;
      if (const auto* replace = std::get_if<ReplaceDecoder>(&spec)) {
        Result<Replacer> created = Replacer::create(replace->pattern, replace->content);
        if (!created) return fail(ErrorCode::bad_config, "Replace: " + created.error().message, "decoder");
        replacer = std::move(*created);
      }
      decoder.replacers_.push_back(std::move(replacer));
      std::visit([&](const auto& stage) { decoder.stages_.emplace_back(stage); }, spec);
    }
  }
  const auto fuses = [](const Stage& stage) {
    return std::holds_alternative<FuseDecoder>(stage) || std::holds_alternative<ByteLevelDecoder>(stage);
  };
  const auto fuse = std::find_if(decoder.stages_.begin(), decoder.stages_.end(), fuses);
  decoder.fuse_ = static_cast<std::size_t>(fuse - decoder.stages_.begin());
  if (fuse == decoder.stages_.end()) {
    decoder.stages_.emplace_back(JoinStage{specs ? "" : " "});
    decoder.replacers_.emplace_back();
  }
  if (Status status = decoder.check_order(); !status) return fail(status.error());
  return decoder;
}

Status TokenDecoder::check_order() const {
  const auto refuse = [](const std::string& what) {
    return fail(ErrorCode::unsupported, what + " after Fuse or ByteLevel is not supported", "decoder");
  };
  for (std::size_t i = fuse_ + 1; i < stages_.size(); ++i) {
    if (std::holds_alternative<ByteLevelDecoder>(stages_[i])) return refuse("ByteLevel");
    if (std::holds_alternative<ByteFallbackDecoder>(stages_[i])) return refuse("ByteFallback");
    if (const auto* replace = std::get_if<ReplaceDecoder>(&stages_[i]);
        replace != nullptr && replace->pattern.is_regex) {
      return refuse("Replace with a regex");
    }
  }
  return {};
}

TokenDecoder::State TokenDecoder::start() const {
  return State(stages_.size());
}

void TokenDecoder::push(State& state, std::string_view token, std::string& out) const {
  push_token(0, state, std::string(token), out);
}

// Stages up to fuse_ map a list of tokens to a list of tokens.
void TokenDecoder::push_token(std::size_t i, State& state, std::string token, std::string& out) const {
  StageState& own = state[i];
  const bool is_first = !std::exchange(own.started, true);
  const Stage& stage = stages_[i];
  if (std::holds_alternative<ReplaceDecoder>(stage)) {
    push_token(i + 1, state, replace(i, token), out);
  } else if (std::holds_alternative<ByteFallbackDecoder>(stage)) {
    if (const int byte = fallback_byte(token); byte >= 0) {
      push_byte_token(i, state, static_cast<char>(static_cast<std::uint8_t>(byte)), out);
    } else {
      end_byte_run(i, state, out);
      push_token(i + 1, state, std::move(token), out);
    }
  } else if (const auto* strip_spec = std::get_if<StripDecoder>(&stage)) {
    push_token(i + 1, state, strip(token, *strip_spec), out);
  } else if (const auto* metaspace = std::get_if<MetaspaceDecoder>(&stage)) {
    push_token(i + 1, state, from_metaspace(token, *metaspace, is_first), out);
  } else if (const auto* join = std::get_if<JoinStage>(&stage)) {
    if (!is_first) out += join->separator;
    out += token;
  } else if (std::holds_alternative<ByteLevelDecoder>(stage)) {
    push_text(i + 1, state, lossy_utf8(own, byte_level_bytes(token), false), out);
  } else {
    push_text(i + 1, state, std::move(token), out);
  }
}

// Stages after fuse_ see one text, in parts.
void TokenDecoder::push_text(std::size_t i, State& state, std::string text, std::string& out) const {
  for (; i < stages_.size() && !text.empty(); ++i) {
    if (const auto* strip_spec = std::get_if<StripDecoder>(&stages_[i])) {
      text = strip_in_stream(state[i], *strip_spec, text);
    } else if (const auto* metaspace = std::get_if<MetaspaceDecoder>(&stages_[i])) {
      text = from_metaspace(text, *metaspace, true);
    } else if (std::holds_alternative<ReplaceDecoder>(stages_[i])) {
      text = replace_in_stream(i, state[i], text, false);
    }
  }
  out += text;
}

void TokenDecoder::push_byte_token(std::size_t i, State& state, char byte, std::string& out) const {
  StageState& own = state[i];
  if (own.broken) {
    push_token(i + 1, state, std::string(kReplacementCharacter), out);
    return;
  }
  own.held.push_back(byte);
  own.checked = size_of_whole_characters(own.held, own.checked);
  const std::string_view rest = std::string_view(own.held).substr(own.checked);
  if (rest.empty() || first_utf8_unit(rest).status == Utf8Status::incomplete) return;
  own.broken = true;
  const std::size_t bytes = own.held.size() - own.context;
  own.held.clear();
  own.checked = 0;
  own.context = 0;
  for (std::size_t k = 0; k < bytes; ++k) push_token(i + 1, state, std::string(kReplacementCharacter), out);
}

void TokenDecoder::end_byte_run(std::size_t i, State& state, std::string& out) const {
  StageState& own = state[i];
  const std::string run = std::exchange(own.held, {});
  const std::size_t context = std::exchange(own.context, 0);
  const bool is_whole = std::exchange(own.checked, 0) == run.size();
  own.broken = false;
  if (run.empty()) return;
  if (is_whole) {
    push_token(i + 1, state, run, out);
    return;
  }
  for (std::size_t k = context; k < run.size(); ++k) push_token(i + 1, state, std::string(kReplacementCharacter), out);
}

void TokenDecoder::flush(State& state, std::string& out) const {
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    StageState& own = state[i];
    if (std::holds_alternative<ByteFallbackDecoder>(stages_[i])) {
      end_byte_run(i, state, out);
    } else if (std::holds_alternative<ByteLevelDecoder>(stages_[i])) {
      push_text(i + 1, state, lossy_utf8(own, {}, true), out);
    } else if (std::holds_alternative<ReplaceDecoder>(stages_[i]) && i > fuse_) {
      push_text(i + 1, state, replace_in_stream(i, own, {}, true), out);
    }
    // A Strip still holds the end of the text, which it drops.
  }
}

void TokenDecoder::leave_context(State& state) const {
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    StageState& own = state[i];
    if (std::holds_alternative<ByteFallbackDecoder>(stages_[i])) {
      own.held.erase(0, own.checked);
      own.checked = 0;
      own.broken = false;
    } else if (!std::holds_alternative<ByteLevelDecoder>(stages_[i])) {
      own.held.clear();
    }
    own.context = static_cast<std::uint32_t>(own.held.size());
  }
}

std::optional<std::string> TokenDecoder::bytes(std::string_view token) const {
  std::string bytes(token);
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const Stage& stage = stages_[i];
    if (std::holds_alternative<ReplaceDecoder>(stage)) {
      bytes = replace(i, bytes);
    } else if (std::holds_alternative<ByteFallbackDecoder>(stage)) {
      // Only stages for whole texts come after this stage; they do not change a byte of a character.
      if (const int byte = fallback_byte(bytes); byte >= 0) return std::string(1, static_cast<char>(byte));
    } else if (const auto* strip_spec = std::get_if<StripDecoder>(&stage)) {
      // Stages after fuse_ strip the text's ends.
      if (i < fuse_ && strip(bytes, *strip_spec) != bytes) return std::nullopt;
    } else if (const auto* metaspace = std::get_if<MetaspaceDecoder>(&stage)) {
      bytes = from_metaspace(bytes, *metaspace, false);
    } else if (const auto* join = std::get_if<JoinStage>(&stage)) {
      if (!join->separator.empty()) return std::nullopt;
    } else if (std::holds_alternative<ByteLevelDecoder>(stage)) {
      bytes = byte_level_bytes(bytes);
    }
  }
  return bytes;
}

std::string TokenDecoder::replace(std::size_t i, std::string_view text) const {
  // A token that is too hard for its regex stays as it is, since decoding cannot fail.
  return replacers_[i]->apply(text).value_or(std::string(text));
}

std::string TokenDecoder::replace_in_stream(std::size_t i, StageState& state, std::string_view text,
                                            bool at_end) const {
  const std::string& pattern = std::get<ReplaceDecoder>(stages_[i]).pattern.text;
  std::string all = std::exchange(state.held, {});
  all += text;
  if (!at_end) {
    // Text after the last match may still become a match.
    std::size_t from = 0;
    for (std::size_t at = all.find(pattern); at != std::string::npos; at = all.find(pattern, from)) {
      from = at + pattern.size();
    }
    const std::size_t keep = overlap(std::string_view(all).substr(from), pattern);
    state.held = all.substr(all.size() - keep);
    all.resize(all.size() - keep);
  }
  return replace(i, all);
}

}  // namespace pagoda::text
