#include "tests/engine/scheduling/simulated_grammar.hpp"

#include <string>

#include "engine/text/tokenizer.hpp"
#include "kernels/sample.hpp"
#include "tests/engine/scheduling/simulated_model.hpp"

namespace pagoda::test {
namespace {

grammar::SharedGrammar compile() {
  text::TokenizerSpec spec;
  spec.model.vocab.emplace_back("<end>", kEos);
  text::AddedToken& end = spec.added_tokens.emplace_back();
  end.id = kEos;
  end.content = "<end>";
  end.special = true;
  for (TokenId id = 1; id < kVocab; ++id) {
    spec.model.vocab.emplace_back(std::string(1, static_cast<char>(id <= 26 ? 'A' + id - 1 : 'a' + id - 27)), id);
  }
  spec.decoders.emplace().emplace_back(text::FuseDecoder{});
  const auto tokenizer = text::Tokenizer::create(spec).value();
  const auto compiler = grammar::Compiler::create(*tokenizer, {.vocab_size = kVocab, .eos_token_ids = {kEos}}).value();
  return compiler->compile({GrammarKind::regex, "([A-Z][a-w]{1,2})*", {}}).value();
}

}  // namespace

grammar::SharedGrammar simulated_grammar() {
  static const grammar::SharedGrammar grammar = compile();
  return grammar;
}

std::vector<std::uint32_t> simulated_mask(const TokenIds& output) {
  grammar::Matcher matcher(simulated_grammar());
  std::vector<std::uint32_t> mask(kernels::mask_words(kVocab));
  for (const TokenId token : output) {
    if (!matcher.accept(token)) return mask;
  }
  if (!matcher.has_ended()) matcher.fill_mask(mask);
  return mask;
}

TokenIds simulated_choices(const TokenIds& output) {
  const auto mask = simulated_mask(output);
  TokenIds tokens;
  for (TokenId token = 0; token < kVocab; ++token) {
    if ((mask[static_cast<std::size_t>(token / 32)] >> (token % 32) & 1U) != 0) tokens.push_back(token);
  }
  return tokens;
}

}  // namespace pagoda::test
