#include <new>

#include "actors/engine_actors.hpp"
#include "engine/text/bad_words.hpp"

namespace pagoda::actors {
namespace {

/// Runs a tokenizer on a thread of its own.
struct TokenizerState {
  TokenizerState() {}

  std::shared_ptr<const text::Tokenizer> tokenizer;
};

using Self = TokenizerActor::stateful_pointer<TokenizerState>;

/// Returns `make()`. When memory runs out, returns an error as the answer, so that the tokenizer does not end.
template <class Reply, class Make>
Reply unless_out_of_memory(Make make) {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    return {fail(ErrorCode::internal, "not enough memory to tokenize this text")};
  }
}

TokenizeReply encode(const text::Tokenizer& tokenizer, const std::string& text, bool add_special_tokens,
                     const std::vector<ByteRange>& literals) {
  return reply(unless_out_of_memory<TokenizeReply>(
      [&]() -> TokenizeReply { return {tokenizer.encode(text, add_special_tokens, literals)}; }));
}

Result<TokenIds> encode_prompt(const text::Tokenizer& tokenizer, const EncodePrompt& message) {
  const GenerateRequest& request = *message.generate;
  if (!request.prompt) return TokenIds(request.prompt_token_ids->begin(), request.prompt_token_ids->end());
  if (!message.max_tokens) {
    return tokenizer.encode(*request.prompt, request.add_special_tokens, request.prompt_literals);
  }
  return tokenizer.encode_end(*request.prompt, request.add_special_tokens, request.prompt_literals,
                              static_cast<std::size_t>(*message.max_tokens));
}

TokenizeReply encode(const text::Tokenizer& tokenizer, const EncodePrompt& message) {
  auto bad_words = text::bad_word_tokens(tokenizer, message.generate->sampling.bad_words);
  if (!bad_words) return {fail(bad_words.error())};
  return {encode_prompt(tokenizer, message), std::move(*bad_words)};
}

DetokenizeReply decode(const text::Tokenizer& tokenizer, const DetokenizeRequest& message) {
  TokenIds ids;
  for (const std::int64_t id : message.token_ids) {
    if (id < 0 || id >= static_cast<std::int64_t>(tokenizer.vocab_size())) {
      return {fail(ErrorCode::invalid_request,
                   "token_ids has " + std::to_string(id) + ", but the vocabulary ends at " +
                       std::to_string(tokenizer.vocab_size() - 1),
                   "token_ids")};
    }
    ids.push_back(static_cast<TokenId>(id));
  }
  return {tokenizer.decode(ids, message.skip_special_tokens)};
}

TokenizerActor::behavior_type behavior(Self self, const std::shared_ptr<const text::Tokenizer>& tokenizer) {
  state_of(self).tokenizer = tokenizer;
  return {
      [self](const EncodePrompt& message) {
        return reply(unless_out_of_memory<TokenizeReply>([&] { return encode(*state_of(self).tokenizer, message); }));
      },
      [self](const TokenizeRequest& message) {
        return encode(*state_of(self).tokenizer, message.text, message.add_special_tokens, message.literals);
      },
      [self](const DetokenizeRequest& message) {
        return reply(unless_out_of_memory<DetokenizeReply>([&] { return decode(*state_of(self).tokenizer, message); }));
      },
  };
}

}  // namespace

TokenizerActor spawn_tokenizer(caf::actor_system& system, std::shared_ptr<const text::Tokenizer> tokenizer) {
  return system.spawn<caf::detached>(behavior, std::move(tokenizer));
}

}  // namespace pagoda::actors
