#include "io/model_files/tokenizer_loader.hpp"

#include <string>
#include <utility>

#include "io/model_files/file_text.hpp"
#include "io/model_files/tokenizer_json.hpp"
#include "io/model_files/tokenizer_json_fields.hpp"

namespace pagoda::io {
namespace {

Result<FolderTokenizer> from_file(Result<text::TokenizerSpec> spec, const std::filesystem::path& file) {
  if (!spec) return fail(std::move(spec.error()));
  return FolderTokenizer{std::move(*spec), file};
}

}  // namespace

bool has_folder_tokenizer(const std::filesystem::path& model_dir) {
  return has_entry(model_dir / "tokenizer.json") || has_entry(model_dir / "tokenizer.model") ||
         has_entry(model_dir / "vocab.json");
}

Result<FolderTokenizer> read_folder_tokenizer(const std::filesystem::path& model_dir) {
  if (const auto json = model_dir / "tokenizer.json"; has_entry(json))
    return from_file(read_tokenizer_json(json), json);
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
