#pragma once

#include <memory>
#include <optional>
#include <string>

#include "apps/interrupts.hpp"

namespace pagoda::apps {

/// Reads typed lines: on a terminal with editing and a history, if the build has libedit; plain lines otherwise.
class LineInput {
 public:
  struct Line {
    std::string text;          ///< without its line end
    bool interrupted = false;  ///< whether Ctrl-C came instead of a line
  };

  /// Returns whether this build has libedit.
  static bool can_edit();

  /// `interrupts` end the wait for a line.
  explicit LineInput(Interrupts& interrupts);
  ~LineInput();

  bool is_terminal() const { return is_terminal_; }

  /// Shows `prompt` on a terminal and waits for a line. Returns nothing at the end of the input.
  std::optional<Line> next(const std::string& prompt);

 private:
  struct Editor;
  std::optional<Line> next_plain(const std::string& prompt);

  Interrupts& interrupts_;
  bool is_terminal_;
  std::unique_ptr<Editor> editor_;
};

}  // namespace pagoda::apps
