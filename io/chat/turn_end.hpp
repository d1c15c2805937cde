#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "io/chat/probe_renderer.hpp"

namespace pagoda::chat {

/// The text that ends the turns of an assistant, which is no part of answers.
class TurnEnd {
 public:
  explicit TurnEnd(ProbeRenderer& renderer);

  /// Return the text before the content of a plain message, and the text after it.
  const std::string& content_header() const { return content_header_; }
  const std::string& content_tail() const { return content_tail_; }

  /// Returns how many bytes at the end of a message with calls are no part of it: those that a plain message also ends
  /// with; else a token that ends the model's turns; else a mark similar to the end of a plain message.
  std::size_t length_in(std::string_view message) const;

 private:
  std::string content_header_;
  std::string content_tail_;
  std::vector<std::string> tokens_;
};

}  // namespace pagoda::chat
