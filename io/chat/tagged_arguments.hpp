#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "io/chat/answer_dialect.hpp"
#include "io/chat/argument_reader.hpp"

namespace pagoda::chat {

/// Makes a JSON object from arguments between tags: key_begin KEY key_end VALUE value_end. If the form has a
/// json_key_end, the tag after the key shows whether the value is JSON.
class TaggedArguments {
 public:
  /// Returns whether the value of a key is written as text; else it is JSON.
  using IsText = std::function<bool(std::string_view key)>;

  TaggedArguments(std::shared_ptr<const ToolCallForm> form, IsText is_text)
      : form_(std::move(form)), is_text_(std::move(is_text)) {}

  /// Appends to `json` the arguments in `text`. They are over where neither a key nor a possible begin of one follows.
  ReadResult consume(std::string_view text, std::string& json);

 private:
  enum class State : std::uint8_t { key, text, json_begin, json_span, json_rest, after_value };

  /// Takes one step at the begin of `text`; `over` means that the step is complete.
  ReadResult step(std::string_view text, std::string& json);
  struct KeyEnd {
    Match match = Match::no;
    std::size_t at = 0;  ///< number of the key's bytes
    std::size_t size = 0;
    bool is_text = false;
  };
  /// Finds the end of the key that `text` begins with.
  KeyEnd end_of_key(std::string_view text) const;
  ReadResult consume_key(std::string_view text, std::string& json);
  ReadResult consume_text(std::string_view text, std::string& json);
  ReadResult begin_json(std::string_view text, std::string& json);
  ReadResult consume_json_rest(std::string_view text, std::string& json);
  ReadResult consume_separator(std::string_view text);
  ReadResult end(std::string& json);

  std::shared_ptr<const ToolCallForm> form_;
  IsText is_text_;
  State state_ = State::key;
  bool has_key_ = false;
  bool is_over_ = false;
  JsonSpan span_;
  std::string white_;  // white space after a JSON value, which belongs to the value only if it continues
};

}  // namespace pagoda::chat
