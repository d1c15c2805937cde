#pragma once

#include <string>

#include "io/chat/chat_prompts.hpp"

namespace pagoda::apps {

/// The messages of a chat.
class Conversation {
 public:
  explicit Conversation(std::string system = {}) : system_(std::move(system)) {}

  /// Sets the text before all turns; empty: none. Earlier turns stay.
  void set_system(std::string system) { system_ = std::move(system); }
  const std::string& system() const { return system_; }

  void add_user(std::string text) { add("user", std::move(text)); }
  void add_assistant(std::string text) { add("assistant", std::move(text)); }

  /// Removes the last message, whose turn has failed.
  void take_back() {
    if (!turns_.empty()) turns_.erase(turns_.size() - 1);
  }
  /// Removes all turns, but not the system text.
  void reset() { turns_ = nlohmann::ordered_json::array(); }

  bool empty() const { return turns_.empty(); }

  nlohmann::ordered_json messages() const {
    auto all = nlohmann::ordered_json::array();
    if (!system_.empty()) all.push_back({{"role", "system"}, {"content", system_}});
    for (const auto& turn : turns_) all.push_back(turn);
    return all;
  }

 private:
  void add(const char* role, std::string text) { turns_.push_back({{"role", role}, {"content", std::move(text)}}); }

  std::string system_;
  nlohmann::ordered_json turns_ = nlohmann::ordered_json::array();
};

}  // namespace pagoda::apps
