#include "io/model_files/tokenizer_loader.hpp"

#include <string>
#include <utility>

#include <spdlog/spdlog.h>

#include "io/model_files/file_text.hpp"
#include "io/model_files/special_tokens.hpp"
#include "io/model_files/tokenizer_config.hpp"
#include "io/model_files/tokenizer_json.hpp"
#include "io/model_files/tokenizer_json_fields.hpp"

namespace pagoda::io {
namespace {

Result<FolderTokenizer> from_file(Result<text::TokenizerSpec> spec, const std::filesystem::path& file) {
  if (!spec) return fail(std::move(spec.error()));
  return FolderTokenizer{std::move(*spec), file};
}

Result<text::TokenizerSpec> read_json_folder(const std::filesystem::path& model_dir) {
  auto spec = read_tokenizer_json(model_dir / "tokenizer.json");
  if (!spec) return spec;
  const auto config = load_tokenizer_config(model_dir);
  if (!config) return fail(config.error());
  const auto renumbered = add_tokens_beside_json(*config, *spec);
  if (!renumbered.empty()) {
    spdlog::warn(
        "{}: added token {} has the id {} here, as in transformers, not the id that the file gives{}",
        (model_dir / (config->has_added_tokens_decoder ? "tokenizer_config.json" : "added_tokens.json")).string(),
        quote(renumbered.front().content), renumbered.front().id,
        renumbered.size() > 1 ? " (and " + std::to_string(renumbered.size() - 1) + " more)" : "");
  }
  return spec;
}

}  // namespace

bool has_folder_tokenizer(const std::filesystem::path& model_dir) {
  return has_entry(model_dir / "tokenizer.json") || has_entry(model_dir / "tokenizer.model") ||
         has_entry(model_dir / "vocab.json");
}

Result<FolderTokenizer> read_folder_tokenizer(const std::filesystem::path& model_dir) {
  if (const auto json = model_dir / "tokenizer.json"; has_entry(json))
    return from_file(read_json_folder(model_dir), json);
  if (const auto model = model_dir / "tokenizer.model"; has_entry(model)) {
    return from_file(read_sentencepiece_files(model_dir), model);
  }
  if (const auto vocab = model_dir / "vocab.json"; has_entry(vocab))
    return from_file(read_gpt2_files(model_dir), vocab);
  return fail(ErrorCode::bad_config, "cannot read a tokenizer in " + model_dir.string() +
                                         ": no tokenizer.json, no tokenizer.model, no vocab.json with merges.txt");
}

Result<std::shared_ptr<const text::Tokenizer>> load_folder_tokenizer(const std::filesystem::path& model_dir) {
  const auto read = read_folder_tokenizer(model_dir);
  if (!read) return fail(read.error());
  Result<std::shared_ptr<const text::Tokenizer>> tokenizer = text::Tokenizer::create(read->spec);
  if (tokenizer) return tokenizer;
  Error error = std::move(tokenizer.error());
  error.message = tokenizer_file::one_line(read->file.string() + ": " + error.param + ": " + error.message);
  return fail(std::move(error));
}

}  // namespace pagoda::io
