#pragma once

#include <memory>
#include <optional>
#include <string>

#include "apps/interrupts.hpp"

namespace pagoda::apps {

/// Lines that somebody types: with editing and a history of lines on a terminal, where the build has libedit; plain
/// lines from anything else.
class LineInput {
 public:
  struct Line {
    std::string text;          ///< without its line end
    bool interrupted = false;  ///< Ctrl-C instead of a line
  };

  /// Whether this build has libedit.
  static bool can_edit();

  /// An interrupt ends the wait for a line.
  explicit LineInput(Interrupts& interrupts);
  ~LineInput();

  bool is_terminal() const { return is_terminal_; }

  /// Shows `prompt` on a terminal and waits for a line. Nothing at the end of the input.
  std::optional<Line> next(const std::string& prompt);

 private:
  struct Editor;
  std::optional<Line> next_plain(const std::string& prompt);

  Interrupts& interrupts_;
  bool is_terminal_;
  std::unique_ptr<Editor> editor_;
};

}  // namespace pagoda::apps
