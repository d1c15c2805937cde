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

/// Renders made-up conversations: a user's message and an assistant's answer. Their words occur in no template.
class ProbeRenderer {
 public:
  /// The user's message in all of them.
  static constexpr std::string_view kUser = "uq7user";
  static constexpr std::string_view kContent = "cq7content";
  static constexpr std::string_view kReasoning = "rq7reasoning";
  /// Tools for the model, and names of their arguments, which are strings except kNumberKey.
  static constexpr const char* kTools[] = {"zq7_alpha", "zq7_beta", "zq7_gamma", "zq7_delta"};
  static constexpr const char* kKeys[] = {"kq7_one", "kq7_two", "kq7_three"};
  static constexpr const char* kNumberKey = "kq7_number";
  static constexpr const char* kId = "qzxwvkjhg";  ///< 9 letters, which Mistral's templates demand

  /// Returns variables without which some templates fail.
  static nlohmann::ordered_json unusual_variables();

  explicit ProbeRenderer(const ChatPrompts& prompts);

  /// Returns whether the template renders anything.
  bool is_usable() const { return is_usable_; }
  /// Returns the text between the user's text and an answer.
  const std::string& generation_prompt() const { return generation_prompt_; }

  /// Returns the texts of the model's special tokens.
  std::vector<std::string> special_tokens() const;
  /// Returns whether the template's source contains this text.
  bool names(std::string_view text) const;

  /// Returns the template's text, after the user's text, for this message of the assistant, with `kwargs` as further
  /// variables. Nothing where the template fails, or the probes have taken too long.
  std::optional<std::string> render(nlohmann::ordered_json message,
                                    const nlohmann::ordered_json& kwargs = nlohmann::ordered_json::object());
  /// Renders `message` with another user message after it; returns the text up to the text of that user message.
  std::optional<std::string> render_before_user(nlohmann::ordered_json message);

  /// Returns a call of the first tool with one string.
  static ProbeCall usual_call();
  /// Return a message of the assistant.
  static nlohmann::ordered_json message(nlohmann::ordered_json content);
  static nlohmann::ordered_json message(nlohmann::ordered_json content, const std::vector<ProbeCall>& calls,
                                        bool arguments_as_text);

 private:
  std::optional<std::string> after_user(nlohmann::ordered_json messages, const nlohmann::ordered_json& kwargs,
                                        bool add_generation_prompt);

  const ChatPrompts& prompts_;
  nlohmann::ordered_json tools_;
  nlohmann::ordered_json variables_ = nlohmann::ordered_json::object();  // variables without which the template fails
  std::string generation_prompt_;
  bool is_usable_ = false;
  int num_left_;
  double cpu_seconds_left_;
};

}  // namespace pagoda::chat
