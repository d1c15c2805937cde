#include "io/model_files/sentencepiece_spec.hpp"

#include <utility>

namespace pagoda::io {

text::TokenizerSpec sentencepiece_spec(std::shared_ptr<const text::SentencePieceModel> model) {
  text::TokenizerSpec spec;
  spec.sentencepiece = std::move(model);
  auto& decoders = spec.decoders.emplace();
  decoders.emplace_back(text::ReplaceDecoder{{"\u2581", false}, " "});
  decoders.emplace_back(text::ByteFallbackDecoder{});
  decoders.emplace_back(text::FuseDecoder{});
  if (const int spaces = spec.sentencepiece->leading_spaces_dropped(); spaces > 0) {
    decoders.emplace_back(text::StripDecoder{" ", spaces, 0});
  }
  return spec;
}

}  // namespace pagoda::io
