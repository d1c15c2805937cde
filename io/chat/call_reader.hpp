#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "io/chat/answer_dialect.hpp"
#include "io/chat/argument_reader.hpp"
#include "io/chat/python_arguments.hpp"
#include "io/chat/tagged_arguments.hpp"

namespace pagoda::chat {

/// Reads one tool call after the other: a head up to its name, of which nothing is taken before all of it is there, and
/// a body.
class CallReader {
 public:
  using IsText = std::function<bool(std::string_view tool, std::string_view key)>;

  CallReader(std::shared_ptr<const ToolCallForm> form, IsText is_text);

  /// A call begins, with the section's begin in front of it or behind another one.
  void start(bool begins_section);

  struct Head {
    Match match = Match::maybe;
    std::size_t bytes = 0;  ///< up to behind the name
    std::string_view name = {};
  };
  /// `text` begins where the call does; given again while the match is not decided, it only grows.
  Head read_head(std::string_view text);

  /// `text` goes on behind the head, or what was taken. Appends what becomes known of the arguments.
  Taken read_body(std::string_view text, std::string& json);

 private:
  const std::vector<CallPart>& parts() const { return begins_section_ ? first_call_ : later_call_; }
  /// Whether `text` begins with the part at `part_`, which has so many bytes then.
  Match match_part(std::string_view text, std::size_t& bytes) const;
  /// The same of a name, an id or an index.
  Match match_run(std::string_view text, std::size_t& bytes) const;
  Taken read_arguments(std::string_view text, std::string& json);
  void start_arguments();

  std::shared_ptr<const ToolCallForm> form_;
  IsText is_text_;
  std::vector<CallPart> first_call_;  // with the section's begin
  std::vector<CallPart> later_call_;  // white space in front of it is taken already
  bool begins_section_ = true;
  std::size_t part_ = 0;
  std::size_t head_bytes_ = 0;  // of the parts in front of `part_`
  std::string name_;
  bool has_arguments_ = false;  // they have begun
  std::variant<JsonArguments, TaggedArguments, PythonArguments> arguments_;
};

}  // namespace pagoda::chat
