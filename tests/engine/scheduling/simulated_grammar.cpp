#include "tests/engine/scheduling/simulated_grammar.hpp"

#include <iterator>
#include <string>

#include "engine/text/tokenizer.hpp"
#include "kernels/sample.hpp"
#include "tests/engine/scheduling/simulated_model.hpp"

namespace pagoda::test {

std::string simulated_text(TokenId token) {
  static constexpr const char* kTexts[] = {"cd", "cdef", "ghi", "lm", "an", "aj"};
  constexpr TokenId kFirstText = kVocab - static_cast<TokenId>(std::size(kTexts));
  if (token <= kEos) return {};
  if (token >= kFirstText) return kTexts[token - kFirstText];
  return std::string(1, static_cast<char>(token <= 26 ? 'A' + token - 1 : 'a' + token - 27));
}

grammar::SharedGrammar grammar_of(const char* regex) {
  text::TokenizerSpec spec;
  spec.model.vocab.emplace_back("<end>", kEos);
  text::AddedToken& end = spec.added_tokens.emplace_back();
  end.id = kEos;
  end.content = "<end>";
  end.special = true;
  for (TokenId id = 1; id < kVocab; ++id) spec.model.vocab.emplace_back(simulated_text(id), id);
  spec.decoders.emplace().emplace_back(text::FuseDecoder{});
  const auto tokenizer = text::Tokenizer::create(spec).value();
  const auto compiler = grammar::Compiler::create(*tokenizer, {.vocab_size = kVocab, .eos_token_ids = {kEos}}).value();
  return compiler->compile({GrammarKind::regex, regex, {}}).value();
}

grammar::SharedGrammar simulated_grammar(std::uint64_t seed) {
  static const grammar::SharedGrammar grammars[] = {
      grammar_of("([A-Z][a-q]{1,2})*"),
      grammar_of("([A-I][a-q]{1,2}|[J-R]e|[S-X]cdefghi[jk]lm)*(Zancdefghibcdlmefhikmop)?")};
  return grammars[seed % std::size(grammars)];
}

std::vector<std::uint32_t> simulated_mask(const grammar::SharedGrammar& grammar, const TokenIds& output) {
  grammar::Matcher matcher(grammar);
  std::vector<std::uint32_t> mask(kernels::mask_words(kVocab));
  for (const TokenId token : output) {
    if (!matcher.accept(token)) return mask;
  }
  if (!matcher.has_ended()) matcher.fill_mask(mask);
  return mask;
}

TokenIds simulated_choices(const grammar::SharedGrammar& grammar, const TokenIds& output) {
  const auto mask = simulated_mask(grammar, output);
  TokenIds tokens;
  for (TokenId token = 0; token < kVocab; ++token) {
    if ((mask[static_cast<std::size_t>(token / 32)] >> (token % 32) & 1U) != 0) tokens.push_back(token);
  }
  return tokens;
}

}  // namespace pagoda::test
