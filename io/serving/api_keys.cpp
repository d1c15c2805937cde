#include "io/serving/api_keys.hpp"

#include <fstream>

namespace pagoda::serving {

Result<std::vector<std::string>> read_api_keys(const std::string& path) {
  std::ifstream file(path);
  if (!file) return fail(ErrorCode::io_failed, "cannot read the API key file " + path, "api_key_file");
  std::vector<std::string> keys;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty() && line.front() != '#') keys.push_back(line);
  }
  if (keys.empty()) return fail(ErrorCode::bad_config, "the API key file " + path + " holds no key", "api_key_file");
  return keys;
}

std::optional<std::size_t> find_key(const std::vector<std::string>& keys, std::string_view key) {
  std::optional<std::size_t> found;
  for (std::size_t k = 0; k < keys.size(); ++k) {
    const auto& candidate = keys[k];
    unsigned difference = candidate.size() == key.size() ? 0U : 1U;
    for (std::size_t i = 0; i < key.size(); ++i) {
      difference |= static_cast<unsigned>(static_cast<unsigned char>(key[i]) ^
                                          static_cast<unsigned char>(candidate[i % candidate.size()]));
    }
    if (difference == 0) found = k;
  }
  return found;
}

bool is_known_key(const std::vector<std::string>& keys, std::string_view key) {
  return find_key(keys, key).has_value();
}

}  // namespace pagoda::serving
