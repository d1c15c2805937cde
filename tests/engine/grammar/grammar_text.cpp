#include "tests/engine/grammar/grammar_text.hpp"

#include <algorithm>

#include "engine/text/unicode.hpp"
#include "kernels/sample.hpp"

namespace pagoda::test {

std::shared_ptr<const text::Tokenizer> word_tokenizer() {
  static const auto tokenizer = [] {
    text::TokenizerSpec spec;
    for (int byte = 0; byte < 256; ++byte) {
      spec.model.vocab.emplace_back(text::byte_level_character(static_cast<std::uint8_t>(byte)), byte);
    }
    text::AddedToken& end = spec.added_tokens.emplace_back();
    end.id = kWordEnd;
    end.content = "<end>";
    end.special = true;
    spec.model.vocab.emplace_back("<end>", kWordEnd);
    TokenId next = kWordEnd + 1;
    for (const char* word : {"\"name", "\":", "{\"", "\"}", "true", "tru", "e}", "null", "12", "0.", ",\"", "],", "ab",
                             "\\\"", "\\u00", "ABBA", "yes", "no", "maybe"}) {
      spec.model.vocab.emplace_back(word, next++);
    }
    // Parts of characters, characters of several bytes, and more characters than some counts allow.
    for (const std::string& bytes :
         {std::string("a\xC3"), std::string("\xE6\x97\xA5\xE6\x9C\xAC"), std::string("\xE6\x97\xA5\""),
          std::string("\xE6\x97\xA5\\"), std::string(20, 'a'), std::string(17, 'a') + "\"", std::string(24, ' ')}) {
      std::string word;
      for (const char byte : bytes) word += text::byte_level_character(static_cast<std::uint8_t>(byte));
      spec.model.vocab.emplace_back(word, next++);
    }
    spec.decoders.emplace().emplace_back(text::ByteLevelDecoder{});
    return text::Tokenizer::create(spec).value();
  }();
  return tokenizer;
}

std::unique_ptr<grammar::Compiler> word_compiler() {
  return grammar::Compiler::create(*word_tokenizer(), {.vocab_size = kWordVocab, .eos_token_ids = {kWordEnd}}).value();
}

bool takes(const grammar::SharedGrammar& grammar, std::string_view text) {
  grammar::Matcher matcher(grammar);
  for (const char c : text) {
    if (!matcher.accept(static_cast<unsigned char>(c))) return false;
  }
  return matcher.accept(kWordEnd);
}

TokenIds allowed(grammar::Matcher& matcher) {
  std::vector<std::uint32_t> mask(kernels::mask_words(kWordVocab), 0xDEADBEEFU);
  matcher.fill_mask(mask);
  TokenIds ids;
  for (TokenId id = 0; id < static_cast<TokenId>(mask.size() * 32); ++id) {
    if ((mask[static_cast<std::size_t>(id / 32)] >> (id % 32) & 1U) != 0) ids.push_back(id);
  }
  return ids;
}

std::optional<std::string> random_text(const grammar::SharedGrammar& grammar, std::mt19937& random,
                                       std::size_t max_bytes) {
  grammar::Matcher matcher(grammar);
  std::string text;
  while (text.size() <= max_bytes) {
    const TokenIds ids = allowed(matcher);
    if (ids.empty()) return std::nullopt;
    const bool ends = ids.back() == kWordEnd || std::find(ids.begin(), ids.end(), kWordEnd) != ids.end();
    const TokenId id = ends && random() % 4 == 0 ? kWordEnd : ids[random() % ids.size()];
    if (!matcher.accept(id)) return std::nullopt;
    if (id == kWordEnd) return text;
    text += *word_tokenizer()->token_bytes(id);
  }
  return std::nullopt;
}

std::string refusal(const StructuredOutput& constraint) {
  const auto compiled = word_compiler()->compile(constraint);
  return compiled ? "" : compiled.error().message;
}

}  // namespace pagoda::test
