#include "io/model_files/gguf/scores_of_merges.hpp"

#include <cstddef>
#include <set>
#include <string_view>
#include <unordered_map>

#include "io/model_files/file_text.hpp"

namespace pagoda::io {
namespace {

bool begins_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U;
}

bool is_one_character(std::string_view text) {
  std::size_t count = 0;
  for (const char byte : text) count += begins_character(byte) ? 1 : 0;
  return count == 1;
}

/// A token that is the result of merges.
struct MergedToken {
  std::size_t order = 0;
  std::set<std::size_t> cuts;  ///< length in bytes of the left half of each of its merges
};

}  // namespace

Result<std::vector<float>> scores_of_merges(const std::vector<std::string>& tokens, const std::vector<bool>& merged,
                                            const std::vector<std::pair<std::string, std::string>>& merges) {
  std::unordered_map<std::string, MergedToken> made;
  const std::string* last = nullptr;
  for (const auto& [left, right] : merges) {
    const auto [token, is_new] = made.try_emplace(left + right);
    if (is_new) token->second.order = made.size();
    if (!is_new && token->first != *last) {
      return fail(ErrorCode::unsupported,
                  "the merges of " + quote(token->first) + " are not adjacent, so scores cannot express them");
    }
    token->second.cuts.insert(left.size());
    last = &token->first;
  }
  std::set<std::string_view> parts;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (merged[id]) parts.insert(tokens[id]);
  }
  std::vector<float> scores(tokens.size());
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (!merged[id]) continue;
    const std::string_view token = tokens[id];
    const auto found = made.find(tokens[id]);
    for (std::size_t cut = 1; cut < token.size(); ++cut) {
      if (!begins_character(token[cut]) || (found != made.end() && found->second.cuts.contains(cut))) continue;
      const auto is_part = [&](std::string_view part) { return parts.contains(part) || is_one_character(part); };
      if (!is_part(token.substr(0, cut)) || !is_part(token.substr(cut))) continue;
      return fail(ErrorCode::unsupported, "there is no merge of " + quote(token.substr(0, cut)) + " and " +
                                              quote(token.substr(cut)) + ", so scores cannot express the merges");
    }
    if (found != made.end()) scores[id] = -static_cast<float>(found->second.order);
  }
  return scores;
}

}  // namespace pagoda::io
