#include <algorithm>
#include <random>
#include <utility>

#include <nlohmann/json.hpp>

#include "apps/bench_serve/workload.hpp"

namespace pagoda::bench_serve {
namespace {

using nlohmann::json;

constexpr std::int64_t kLongestOutput = 1 << 24;

class DatasetWorkload final : public Workload {
 public:
  DatasetWorkload(std::vector<Prompt> prompts, DatasetOptions options, std::uint64_t seed)
      : prompts_(std::move(prompts)) {
    if (options.output_len > 0) {
      for (auto& prompt : prompts_) prompt.output_len = options.output_len;
    }
    if (options.shuffle) std::shuffle(prompts_.begin(), prompts_.end(), std::mt19937_64(seed));
  }

  Prompt next() override { return prompts_[next_++ % prompts_.size()]; }

 private:
  std::vector<Prompt> prompts_;
  std::size_t next_ = 0;
};

auto refuse_dataset(const std::string& why) {
  return fail(ErrorCode::bad_config, "the dataset " + why, "dataset_path");
}

Result<std::unique_ptr<Workload>> make_workload(std::vector<Prompt> prompts, DatasetOptions options,
                                                std::uint64_t seed) {
  if (prompts.empty()) return refuse_dataset("has no prompt");
  return std::make_unique<DatasetWorkload>(std::move(prompts), options, seed);
}

Result<Prompt> read_line(const std::string& line, std::size_t number) {
  constexpr std::int64_t kOutputLen = 256;
  const auto refuse = [&](const char* why) { return refuse_dataset("has a line " + std::to_string(number) + why); };
  const json object = json::parse(line, nullptr, false);
  if (!object.is_object()) return refuse(" that is not a JSON object");
  const auto prompt = object.find("prompt");
  if (prompt == object.end() || !prompt->is_string()) return refuse(" without the text \"prompt\"");
  const auto output = object.find("output_tokens");
  if (output == object.end()) return Prompt{prompt->get<std::string>(), kOutputLen};
  if (!output->is_number_integer() || *output < 1 || *output > kLongestOutput) {
    return refuse(" whose \"output_tokens\" is not a number of tokens");
  }
  return Prompt{prompt->get<std::string>(), output->get<std::int64_t>()};
}

/// Returns the text of a turn; null if it has none.
const std::string* turn_of(const json& turns, std::size_t index) {
  if (!turns.is_array() || turns.size() <= index || !turns[index].is_object()) return nullptr;
  const auto value = turns[index].find("value");
  return value == turns[index].end() ? nullptr : value->get_ptr<const std::string*>();
}

}  // namespace

Result<std::unique_ptr<Workload>> read_custom_dataset(const std::string& text, DatasetOptions options,
                                                      std::uint64_t seed) {
  std::vector<Prompt> prompts;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    const auto line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    auto prompt = read_line(line, number);
    if (!prompt) return fail(std::move(prompt.error()));
    prompts.push_back(*std::move(prompt));
  }
  return make_workload(std::move(prompts), options, seed);
}

Result<std::unique_ptr<Workload>> read_sharegpt_dataset(const std::string& text, DatasetOptions options,
                                                        std::uint64_t seed) {
  constexpr std::size_t kBytesOfToken = 4;
  const json conversations = json::parse(text, nullptr, false);
  if (!conversations.is_array()) return refuse_dataset("is not a JSON list of conversations");
  std::vector<Prompt> prompts;
  for (std::size_t i = 0; i < conversations.size(); ++i) {
    const auto& conversation = conversations[i];
    if (!conversation.is_object() || !conversation.contains("conversations")) {
      return refuse_dataset("has an item " + std::to_string(i) + " (from 0) without \"conversations\"");
    }
    const auto& turns = conversation["conversations"];
    const auto* prompt = turn_of(turns, 0);
    const auto* answer = turn_of(turns, 1);
    if (prompt == nullptr || answer == nullptr || prompt->empty()) continue;
    const auto tokens = static_cast<std::int64_t>((answer->size() + kBytesOfToken - 1) / kBytesOfToken);
    prompts.push_back({*prompt, std::clamp<std::int64_t>(tokens, 1, kLongestOutput)});
  }
  return make_workload(std::move(prompts), options, seed);
}

}  // namespace pagoda::bench_serve
