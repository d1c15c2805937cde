#pragma once

#include <fstream>
#include <istream>
#include <memory>
#include <optional>
#include <string>

#include "io/json_lines/protocol.hpp"
#include "kernels/result.hpp"

namespace pagoda::apps {

/// Returns prompts one after the other: a single text, or the lines of a file. A line that starts with { is a generate
/// object. Blank lines are skipped. The file is read piece by piece.
class PromptSource {
 public:
  /// A prompt and the id of its output: the object's own id, else its line number.
  struct Prompt {
    std::string id;
    tl::expected<GenerateRequest, wire::WireError> request;
    bool timing = false;                                           ///< whether its result has timings
    std::shared_ptr<const chat::AnswerReading> reading = nullptr;  ///< null: its answers are plain texts
  };

  /// Meaning of a plain text: a prompt as it is or, with `is_chat`, a user's message after the system's. With
  /// `prompts`, a generate object may also have messages.
  struct Form {
    std::shared_ptr<const chat::ChatPrompts> prompts;  ///< null: the model has no chat template
    bool is_chat = false;
    std::string system;
  };

  /// `defaults` has the sampling fields of prompts that do not set them.
  static PromptSource single(std::string prompt, GenerateRequest defaults, Form form);
  /// Opens a file. `path` - is standard input. Error: io_failed.
  static Result<PromptSource> open(const std::string& path, GenerateRequest defaults, Form form);

  /// Returns the next prompt, or nothing at the end.
  std::optional<Prompt> next();

  /// Returns the share of the file that has been read, 0 .. 1; negative if the file's size is not known.
  double fraction_read();

 private:
  PromptSource(GenerateRequest defaults, Form form) : defaults_(std::move(defaults)), form_(std::move(form)) {}
  Prompt parse(const std::string& line);
  Prompt of_text(std::string id, std::string text) const;

  GenerateRequest defaults_;
  Form form_;
  std::optional<std::string> single_;
  std::unique_ptr<std::ifstream> file_;
  std::istream* lines_ = nullptr;
  double file_bytes_ = 0;
  double read_bytes_ = 0;
  std::int64_t line_number_ = 0;
};

}  // namespace pagoda::apps
