#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/chat/chat_prompts.hpp"

namespace pagoda::chat {

/// A tool call of a made-up conversation.
struct ProbeCall {
  std::string name;
  std::string id;
  nlohmann::ordered_json arguments;
};

/// Renders made-up conversations: one user, and what an assistant says to that. Their words are such as no template
/// has.
class ProbeRenderer {
 public:
  /// What the user of all of them says.
  static constexpr std::string_view kUser = "uq7user";
  static constexpr std::string_view kContent = "cq7content";
  static constexpr std::string_view kReasoning = "rq7reasoning";
  /// The tools that the model is told of take arguments of these names: texts but for kNumberKey.
  static constexpr const char* kTools[] = {"zq7_alpha", "zq7_beta", "zq7_gamma", "zq7_delta"};
  static constexpr const char* kKeys[] = {"kq7_one", "kq7_two", "kq7_three"};
  static constexpr const char* kNumberKey = "kq7_number";
  static constexpr const char* kId = "qzxwvkjhg";  ///< of 9 letters, which Mistral's templates demand

  /// Variables that some templates fail without.
  static nlohmann::ordered_json unusual_variables();

  explicit ProbeRenderer(const ChatPrompts& prompts);

  /// The template renders something.
  bool is_usable() const { return is_usable_; }
  /// What stands between the user's text and an answer.
  const std::string& generation_prompt() const { return generation_prompt_; }

  /// The texts of the model's special tokens.
  std::vector<std::string> special_tokens() const;
  /// Whether the template names this text.
  bool names(std::string_view text) const;

  /// What the template writes behind the user's text for this message of the assistant, with these variables more.
  /// Nothing where it refuses, or the probes have taken too long.
  std::optional<std::string> render(nlohmann::ordered_json message,
                                    const nlohmann::ordered_json& kwargs = nlohmann::ordered_json::object());
  /// The same, and another user message follows; up to its text.
  std::optional<std::string> render_before_user(nlohmann::ordered_json message);

  /// A call of the first tool with one text.
  static ProbeCall usual_call();
  /// What an assistant says.
  static nlohmann::ordered_json message(nlohmann::ordered_json content);
  static nlohmann::ordered_json message(nlohmann::ordered_json content, const std::vector<ProbeCall>& calls,
                                        bool arguments_as_text);

 private:
  std::optional<std::string> behind_user(nlohmann::ordered_json messages, const nlohmann::ordered_json& kwargs,
                                         bool add_generation_prompt);

  const ChatPrompts& prompts_;
  nlohmann::ordered_json tools_;
  nlohmann::ordered_json variables_ = nlohmann::ordered_json::object();  // that some templates need
  std::string generation_prompt_;
  bool is_usable_ = false;
  int num_left_;
  double cpu_seconds_left_;
};

}  // namespace pagoda::chat
