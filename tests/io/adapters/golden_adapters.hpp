#pragma once

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "io/adapters/read_adapter.hpp"
#include "io/model_files/file_text.hpp"
#include "io/model_files/model_files.hpp"

namespace pagoda::test {

inline std::filesystem::path golden_data() {
  return std::filesystem::path(PAGODA_SOURCE_DIR) / "tests" / "data";
}

inline std::vector<std::string> golden_adapter_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden_data() / "adapters")) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

/// Returns `name` as the name of a test.
inline std::string test_name(std::string name) {
  std::ranges::replace(name, '-', '_');
  return name;
}

/// A folder of tests/data/adapters (tools/make_adapter_goldens.py).
class GoldenAdapter {
 public:
  explicit GoldenAdapter(const std::string& name) : folder_(golden_data() / "adapters" / name) {}

  const nlohmann::json& json() const { return json_; }
  /// Returns the folder of the model that the adapter is for.
  std::filesystem::path base() const { return golden_data() / "models" / json_.at("base").get<std::string>(); }

  /// Returns the path of the adapter: a GGUF file or a folder.
  std::string path() const {
    const auto gguf = folder_ / "adapter.gguf";
    return std::filesystem::exists(gguf) ? gguf : folder_;
  }

  Result<adapters::Adapter> read() const {
    const auto spec = io::open_model_files(base()).value()->spec().value();
    return io::read_adapter(path(), spec.decoder.attention_of(0).head_dim);
  }

 private:
  std::filesystem::path folder_;
  nlohmann::json json_ = io::read_json_file(folder_ / "golden.json", 10'000'000, ErrorCode::bad_file).value();
};

/// Returns the names of the models that golden adapters are for.
inline std::vector<std::string> golden_adapter_bases() {
  std::set<std::string> bases;
  for (const std::string& name : golden_adapter_names()) bases.insert(GoldenAdapter(name).base().filename());
  return {bases.begin(), bases.end()};
}

}  // namespace pagoda::test
