#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "io/chat/probe_renderer.hpp"

namespace pagoda::chat {

/// What ends the turns of an assistant, and is no part of answers.
class TurnEnd {
 public:
  explicit TurnEnd(ProbeRenderer& renderer);

  /// What stands before the content of a plain message, and behind it.
  const std::string& content_header() const { return content_header_; }
  const std::string& content_tail() const { return content_tail_; }

  /// How many bytes of the end of a message that has calls are no part of it: those that a plain message ends with
  /// too; else a token that ends the model's turns; else a mark that looks like what ends a plain message.
  std::size_t length_in(std::string_view message) const;

 private:
  std::string content_header_;
  std::string content_tail_;
  std::vector<std::string> tokens_;
};

}  // namespace pagoda::chat
