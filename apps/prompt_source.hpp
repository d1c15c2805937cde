#pragma once

#include <fstream>
#include <istream>
#include <memory>
#include <optional>
#include <string>

#include "io/json_lines/protocol.hpp"
#include "kernels/result.hpp"

namespace pagoda::apps {

/// Prompts one after the other: a single text, or the lines of a file. A line that starts with { is a generate object;
/// blank lines are skipped. The file is read as it is needed, never as a whole.
class PromptSource {
 public:
  /// A prompt and the name that its output carries: the object's own id, else its line number.
  struct Prompt {
    std::string id;
    tl::expected<GenerateRequest, json_lines::WireError> request;
  };

  /// `defaults` holds the sampling fields of every prompt that does not say otherwise.
  static PromptSource single(std::string prompt, GenerateRequest defaults);
  /// `path` - is standard input. Error: io_failed.
  static Result<PromptSource> open(const std::string& path, GenerateRequest defaults);

  /// The next prompt, or nothing at the end.
  std::optional<Prompt> next();

  /// How much of the file has been read, 0 .. 1; negative when its size is not known.
  double fraction_read();

 private:
  explicit PromptSource(GenerateRequest defaults) : defaults_(std::move(defaults)) {}
  Prompt parse(const std::string& line);

  GenerateRequest defaults_;
  std::optional<std::string> single_;
  std::unique_ptr<std::ifstream> file_;
  std::istream* lines_ = nullptr;
  double file_bytes_ = 0;
  double read_bytes_ = 0;
  std::int64_t line_number_ = 0;
};

}  // namespace pagoda::apps
