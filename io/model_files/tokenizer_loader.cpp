#include "io/model_files/tokenizer_loader.hpp"

#include <string>
#include <system_error>
#include <utility>

#include "io/model_files/tokenizer_json.hpp"
#include "io/model_files/tokenizer_json_fields.hpp"

namespace pagoda::io {
namespace {

bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

Result<std::shared_ptr<const text::Tokenizer>> create(const Result<text::TokenizerSpec>& spec,
                                                      const std::filesystem::path& path) {
  if (!spec) return fail(spec.error());
  Result<std::shared_ptr<const text::Tokenizer>> tokenizer = text::Tokenizer::create(*spec);
  if (tokenizer) return tokenizer;
  Error error = std::move(tokenizer.error());
  error.message = tokenizer_file::one_line(path.string() + ": " + error.param + ": " + error.message);
  return fail(std::move(error));
}

}  // namespace

bool has_folder_tokenizer(const std::filesystem::path& model_dir) {
  return is_there(model_dir / "tokenizer.json") || is_there(model_dir / "tokenizer.model") ||
         is_there(model_dir / "vocab.json");
}

Result<std::shared_ptr<const text::Tokenizer>> load_folder_tokenizer(const std::filesystem::path& model_dir) {
  if (const auto json = model_dir / "tokenizer.json"; is_there(json)) return create(read_tokenizer_json(json), json);
  if (const auto model = model_dir / "tokenizer.model"; is_there(model)) {
    return create(read_sentencepiece_files(model_dir), model);
  }
  if (const auto vocab = model_dir / "vocab.json"; is_there(vocab)) return create(read_gpt2_files(model_dir), vocab);
  return fail(ErrorCode::bad_config, "cannot read a tokenizer in " + model_dir.string() +
                                         ": no tokenizer.json, no tokenizer.model, no vocab.json with merges.txt");
}

}  // namespace pagoda::io
