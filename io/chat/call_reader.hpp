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

/// Reads tool calls, one after the other: a head up to the name, of which nothing is consumed before it is complete,
/// and a body.
class CallReader {
 public:
  using IsText = std::function<bool(std::string_view tool, std::string_view key)>;

  CallReader(std::shared_ptr<const ToolCallForm> form, IsText is_text);

  /// Call at the begin of a call. `begins_section`: whether the section's begin precedes it; else another call does.
  void start(bool begins_section);

  struct Head {
    Match match = Match::maybe;
    std::size_t bytes = 0;  ///< number of bytes up to the end of the name
    std::string_view name = {};
  };
  /// `text` begins where the call begins. While the match is undecided, call again with this text and more after it.
  Head read_head(std::string_view text);

  /// `text` continues after the head or after the bytes consumed so far. Appends the arguments known now.
  ReadResult read_body(std::string_view text, std::string& json);

 private:
  const std::vector<CallPart>& parts() const { return begins_section_ ? first_call_ : later_call_; }
  /// Returns whether `text` begins with the part at `part_`, and sets `bytes` to its size.
  Match match_part(std::string_view text, std::size_t& bytes) const;
  /// Returns whether `text` begins with a name, an id or an index, and sets `bytes` to its size.
  Match match_run(std::string_view text, std::size_t& bytes) const;
  ReadResult read_arguments(std::string_view text, std::string& json);
  void start_arguments();

  std::shared_ptr<const ToolCallForm> form_;
  IsText is_text_;
  std::vector<CallPart> first_call_;  // begins with the section's begin
  std::vector<CallPart> later_call_;  // white space before the call is consumed already
  bool begins_section_ = true;
  std::size_t part_ = 0;
  std::size_t head_bytes_ = 0;  // size of the parts before `part_`
  std::string name_;
  bool has_arguments_ = false;  // whether the arguments have begun
  std::variant<JsonArguments, TaggedArguments, PythonArguments> arguments_;
};

}  // namespace pagoda::chat
