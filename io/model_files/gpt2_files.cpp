#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "engine/text/bpe_model.hpp"
#include "io/model_files/file_text.hpp"
#include "io/model_files/gguf/gguf_pre_tokenizers.hpp"
#include "io/model_files/special_tokens.hpp"
#include "io/model_files/tokenizer_config.hpp"
#include "io/model_files/tokenizer_json_fields.hpp"
#include "io/model_files/tokenizer_loader.hpp"

namespace pagoda::io {
namespace {

constexpr std::size_t kMaxVocabularyBytes = std::size_t{256} << 20;
constexpr const char* kEndOfText = "<|endoftext|>";

Status read_vocab(const std::filesystem::path& path, text::BpeSpec& bpe) {
  const auto root = read_json_file(path, kMaxVocabularyBytes, ErrorCode::bad_config);
  if (!root) return fail(root.error());
  if (!root->is_object()) return fail(ErrorCode::bad_config, path.string() + ": is not an object");
  tokenizer_file::JsonFields fields(*root, "");
  for (const auto& [token, id] : root->items()) bpe.vocab.emplace_back(token, fields.natural(token));
  Status status = fields.finish();
  if (status) return {};
  return fail(ErrorCode::bad_config, tokenizer_file::one_line(path.string() + ": " + status.error().message));
}

// Each line is one merge, best first; lines that begin with "#version" are skipped.
Status read_merges(const std::filesystem::path& path, text::BpeSpec& bpe) {
  const Result<std::string> bytes = tokenizer_file::read_file(path, kMaxVocabularyBytes);
  if (!bytes) return fail(bytes.error());
  std::string_view rest = *bytes;
  for (std::size_t number = 1; !rest.empty(); ++number) {
    const std::size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("#version") || (line.empty() && rest.empty())) continue;
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
      return fail(ErrorCode::bad_config,
                  path.string() + ": line " + std::to_string(number) + " is not two tokens with a space between");
    }
    bpe.merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  return {};
}

text::AddedToken special(const char* content) {
  text::AddedToken token;
  token.content = content;
  token.special = true;
  return token;
}

/// Adds what comes before the merges, which follows from the class: these files do not have it.
Status add_pre_tokenizer(const TokenizerConfig& config, text::TokenizerSpec& spec) {
  std::string_view name = config.tokenizer_class;
  if (name.ends_with("Fast")) name.remove_suffix(std::string_view("Fast").size());
  if (name == "Qwen2Tokenizer") {
    const GgufPreTokenizer& qwen2 = *find_gguf_pre_tokenizer("qwen2");
    spec.normalizers = qwen2.normalizers;
    spec.pre_tokenizers = qwen2.pre_tokenizers;
    return {};
  }
  constexpr std::array<std::string_view, 5> kLikeGpt2{"", "GPT2Tokenizer", "CodeGenTokenizer", "BartTokenizer",
                                                      "RobertaTokenizer"};
  if (std::ranges::find(kLikeGpt2, name) == kLikeGpt2.end()) {
    return fail(ErrorCode::unsupported,
                "tokenizer_config.json: tokenizer_class " + quote(config.tokenizer_class) +
                    " is not known for vocab.json and merges.txt, whose texts are split as the class says: a "
                    "tokenizer.json is needed");
  }
  spec.pre_tokenizers.emplace_back(text::ByteLevelPreTokenizer{config.add_prefix_space.value_or(false), true});
  return {};
}

}  // namespace

Result<text::TokenizerSpec> read_gpt2_files(const std::filesystem::path& model_dir) {
  const Result<TokenizerConfig> config = load_tokenizer_config(model_dir);
  if (!config) return fail(config.error());
  text::TokenizerSpec spec;
  if (Status status = read_vocab(model_dir / "vocab.json", spec.model); !status) return fail(status.error());
  if (Status status = read_merges(model_dir / "merges.txt", spec.model); !status) return fail(status.error());
  const Result<text::BpeModel> model = text::BpeModel::create(spec.model);
  if (!model) {
    return fail(model.error().code,
                tokenizer_file::one_line((model_dir / "vocab.json").string() + ": " + model.error().message));
  }
  SpecialTokenDefaults defaults;
  if (model->find(kEndOfText)) {
    defaults.tokens.push_back(special(kEndOfText));
    defaults.bos_token = defaults.eos_token = kEndOfText;
  }
  add_special_tokens(*config, defaults, *model, spec);
  if (Status status = add_pre_tokenizer(*config, spec); !status) return fail(std::move(status.error()));
  spec.decoders.emplace().emplace_back(text::ByteLevelDecoder{});
  return spec;
}

}  // namespace pagoda::io
