#pragma once

#include <filesystem>
#include <functional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/types.hpp"
#include "pagoda/quantize_model.hpp"
#include "tests/support/temporary_folder.hpp"

/// Model folders of every architecture that GGUF has a name for, and what is compared once they are converted.
namespace pagoda::test {

/// A folder's files but for its weights: name and content.
using Files = std::vector<std::pair<std::string, std::string>>;

struct ConversionCase {
  const char* name;
  const char* architecture;  ///< general.architecture
  std::function<Files()> files;
};
void PrintTo(const ConversionCase& tested, std::ostream* out);

const std::vector<ConversionCase>& conversion_cases();
Files files_of_case(const char* name);
void change_json(Files& files, const char* file, const nlohmann::json& changes);

/// Writes the files and random weights.
void write_model(const TemporaryFolder& folder, const Files& files);

/// 8 bits, looking at little text.
QuantizeOptions conversion_options(const std::filesystem::path& model, const std::filesystem::path& out);

/// Logits after each token.
std::vector<std::vector<float>> logits_of(const std::filesystem::path& model, const TokenIds& tokens);

/// How far `row` is from `expected`, as a part of how far the latter's values are from their mean.
double relative_distance(const std::vector<float>& row, const std::vector<float>& expected);

/// Such that tokenizers may take differently.
nlohmann::json texts_to_tokenize();

/// Expects two models to have the same tokenizer: ids of texts, texts of ids, what is special.
void expect_same_tokenizer(const std::filesystem::path& wanted, const std::filesystem::path& model);
/// And the same chat prompts, or none.
void expect_same_chat_prompts(const std::filesystem::path& wanted, const std::filesystem::path& model);

}  // namespace pagoda::test
