#pragma once

/// The model folders under tests/data/models, as an engine can serve them.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include <nlohmann/json.hpp>

#include "io/model_files/hf_config.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda::test {

inline const std::filesystem::path kGoldenModels = PAGODA_SOURCE_DIR "/tests/data/models";

/// What transformers gave for some prompts.
inline nlohmann::json golden_cases(const std::string& model) {
  return nlohmann::json::parse(std::ifstream(kGoldenModels / model / "golden.json")).at("cases");
}

/// A tokenizer that knows a name for each token, which the engine asks for.
inline void write_tokenizer(const TemporaryFolder& folder, std::int64_t vocab_size) {
  nlohmann::json vocab = nlohmann::json::object();
  for (std::int64_t id = 0; id < vocab_size; ++id) vocab["t" + std::to_string(id)] = id;
  folder.write(
      "tokenizer.json",
      nlohmann::json{{"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}}.dump());
}

/// A golden model's folder with a tokenizer.
class ServableModel {
 public:
  explicit ServableModel(const std::string& name) {
    for (const auto& entry : std::filesystem::directory_iterator(kGoldenModels / name)) {
      std::filesystem::create_symlink(entry.path(), folder_.path() / entry.path().filename());
    }
    const auto spec = io::load_hf_config(kGoldenModels / name);
    if (!spec) throw std::runtime_error(spec.error().message);
    layout_ = spec->kv_layout(1, DType::f32);
    write_tokenizer(folder_, spec->vocab_size);
  }

  std::string path() const { return folder_.path().string(); }
  /// Returns the layout of the model's KV in blocks of this size.
  KvLayout layout(std::int32_t block_size) const {
    KvLayout layout = layout_;
    for (KvGroup& group : layout.groups) group.block_size = block_size;
    return layout;
  }

 private:
  TemporaryFolder folder_;
  KvLayout layout_;
};

}  // namespace pagoda::test
