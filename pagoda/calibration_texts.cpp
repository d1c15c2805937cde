#include "pagoda/calibration_texts.hpp"

#include <algorithm>
#include <random>
#include <utility>

#include "pagoda/engine.hpp"

namespace pagoda {

Result<std::vector<TokenIds>> write_texts(const EngineConfig& config, const models::ModelSpec& spec,
                                          std::int64_t num_texts, std::int64_t context, const StartProgress& progress) {
  constexpr std::uint64_t kSeed = 1;
  EngineConfig writing = config;
  writing.max_model_len = context;
  writing.max_num_seqs = static_cast<std::int32_t>(std::min<std::int64_t>(num_texts, 32));
  const auto engine = Engine::create(writing, {.device = nullptr, .progress = progress});
  if (!engine) return fail(engine.error());
  std::mt19937_64 random(kSeed);
  std::vector<TokenIds> texts;
  while (std::ssize(texts) < num_texts) {
    if (progress) progress("writing texts", static_cast<double>(texts.size()) / static_cast<double>(num_texts));
    std::vector<GenerateRequest> some(std::min<std::size_t>(static_cast<std::size_t>(num_texts) - texts.size(), 32));
    for (GenerateRequest& request : some) {
      const auto any = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(spec.vocab_size));
      request.prompt_token_ids = {spec.bos_token_id ? std::int64_t{*spec.bos_token_id} : any};
      request.stream = false;
      request.sampling.max_tokens = context - 1;
      request.sampling.ignore_eos = true;
      request.sampling.temperature = 1;
      request.sampling.seed = kSeed + texts.size() + static_cast<std::size_t>(&request - some.data());
    }
    const auto results = (*engine)->generate(some);
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (!results[i]) return fail(results[i].error());
      TokenIds text{static_cast<TokenId>(some[i].prompt_token_ids->front())};
      const TokenIds& written = results[i]->outputs.front().token_ids;
      text.insert(text.end(), written.begin(), written.end());
      texts.push_back(std::move(text));
    }
  }
  return texts;
}

Result<std::vector<TokenIds>> cut_text(const text::Tokenizer& tokenizer, const std::string& text,
                                       std::int64_t num_texts, std::int64_t context) {
  const auto ids = tokenizer.encode(text, true);
  if (!ids) return fail(ids.error());
  std::vector<TokenIds> texts;
  for (std::int64_t begin = 0; begin + context <= std::ssize(*ids) && std::ssize(texts) < num_texts; begin += context) {
    texts.emplace_back(ids->begin() + begin, ids->begin() + begin + context);
  }
  if (!texts.empty()) return texts;
  return fail(ErrorCode::bad_config,
              "the calibration text has " + std::to_string(ids->size()) + " tokens, fewer than one piece of " +
                  std::to_string(context),
              "calibration");
}

}  // namespace pagoda
