#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "io/chat/chat_template.hpp"

namespace pagoda::chat::testing {

using Json = nlohmann::ordered_json;

inline const std::filesystem::path kTemplatesDir = std::filesystem::path(PAGODA_SHARED_DIR) / "templates";
inline const std::filesystem::path kGoldens = std::filesystem::path(PAGODA_SHARED_DIR) / "goldens" / "templates.json";

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline ChatTemplate parse_file(const std::string& name) {
  Result<ChatTemplate> parsed = ChatTemplate::parse(read_file(kTemplatesDir / name));
  EXPECT_TRUE(parsed) << name << ": " << parsed.error().message;
  return std::move(parsed).value();
}

/// What a golden case was rendered from.
inline ChatInput golden_input(const Json& goldens, const Json& golden_case) {
  ChatInput input;
  strptime(goldens.at("now").get<std::string>().c_str(), "%Y-%m-%dT%H:%M:%S", &input.now);
  input.special_tokens = {{"bos_token", goldens.at("bos_token")}, {"eos_token", goldens.at("eos_token")}};
  input.messages = golden_case.at("messages");
  if (golden_case.contains("tools")) input.tools = golden_case.at("tools");
  input.add_generation_prompt = golden_case.value("add_generation_prompt", false);
  for (const auto& [name, value] : golden_case.items()) {
    const bool is_kwarg =
        name != "messages" && name != "tools" && name != "add_generation_prompt" && name != "text" && name != "error";
    if (is_kwarg) input.chat_template_kwargs[name] = value;
  }
  return input;
}

}  // namespace pagoda::chat::testing
