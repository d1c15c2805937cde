#include <string>
#include <utility>

#include "engine/text/sentencepiece_model.hpp"
#include "io/model_files/sentencepiece_proto.hpp"
#include "io/model_files/sentencepiece_spec.hpp"
#include "io/model_files/special_tokens.hpp"
#include "io/model_files/tokenizer_config.hpp"
#include "io/model_files/tokenizer_json_fields.hpp"
#include "io/model_files/tokenizer_loader.hpp"

namespace pagoda::io {
namespace {

using text::SentencePieceModel;

constexpr std::size_t kMaxSentencePieceBytes = std::size_t{256} << 20;

SpecialTokenDefaults defaults_of(const SentencePieceModel& model) {
  SpecialTokenDefaults defaults;
  const auto name = [&](std::optional<TokenId> id) { return id ? std::string(model.token(*id)) : std::string(); };
  defaults.bos_token = name(model.bos_id());
  defaults.eos_token = name(model.eos_id());
  defaults.add_bos_token = true;
  for (TokenId id = 0; id < model.end_id(); ++id) {
    if (!model.is_control(id) && id != model.unk_id()) continue;
    text::AddedToken token;
    token.content = model.token(id);
    token.special = true;
    defaults.tokens.push_back(std::move(token));
  }
  return defaults;
}

}  // namespace

SentencePieceModel::SpaceBefore sentencepiece_space_before(const TokenizerConfig& config) {
  if (!config.add_prefix_space.value_or(true)) return SentencePieceModel::SpaceBefore::none;
  return config.legacy.value_or(true) ? SentencePieceModel::SpaceBefore::each_text
                                      : SentencePieceModel::SpaceBefore::first_text;
}

Result<std::string> read_sentencepiece_model(const std::filesystem::path& file) {
  Result<std::string> bytes = tokenizer_file::read_file(file, kMaxSentencePieceBytes);
  if (!bytes) return bytes;
  const Result<SentencePieceProto> proto = parse_sentencepiece_proto(*bytes);
  if (!proto) return fail(proto.error().code, file.string() + ": " + proto.error().message);
  if (const Status status = check_sentencepiece_proto(*proto); !status) {
    return fail(status.error().code, file.string() + ": " + status.error().message);
  }
  return bytes;
}

Result<text::TokenizerSpec> make_sentencepiece_tokenizer(std::string_view bytes, const TokenizerConfig& config) {
  auto model = SentencePieceModel::create(bytes, sentencepiece_space_before(config));
  if (!model) return fail(std::move(model.error()));
  text::TokenizerSpec spec = sentencepiece_spec(std::move(*model));
  add_special_tokens(config, defaults_of(*spec.sentencepiece), *spec.sentencepiece, spec);
  return spec;
}

Result<text::TokenizerSpec> read_sentencepiece_files(const std::filesystem::path& model_dir) {
  const std::filesystem::path path = model_dir / "tokenizer.model";
  const Result<TokenizerConfig> config = load_tokenizer_config(model_dir);
  if (!config) return fail(config.error());
  const Result<std::string> bytes = read_sentencepiece_model(path);
  if (!bytes) return fail(bytes.error());
  auto spec = make_sentencepiece_tokenizer(*bytes, *config);
  if (spec) return spec;
  return fail(spec.error().code, tokenizer_file::one_line(path.string() + ": " + spec.error().message));
}

}  // namespace pagoda::io
