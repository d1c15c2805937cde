#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/chat/argument_reader.hpp"

namespace pagoda::chat {

/// Makes a JSON object from keyword arguments with Python's literals: city="Paris", days=3, exact=True. Tuples become
/// arrays, keys of dictionaries become strings.
class PythonArguments {
 public:
  /// Appends to `json` the arguments in `text`. They are over where neither a comma nor a key follows.
  ReadResult consume(std::string_view text, std::string& json);

 private:
  enum class State : std::uint8_t { key, value, number, string, after_value };
  enum class Container : std::uint8_t { list, tuple, dict_key, dict_value };

  /// Takes one step at the begin of `text`; `over` means that the step is complete.
  ReadResult step(std::string_view text, std::string& json);
  ReadResult consume_key(std::string_view text, std::string& json);
  ReadResult consume_value(std::string_view text, std::string& json);
  ReadResult consume_word(std::string_view text, std::string& json);
  ReadResult consume_number(std::string_view text, std::string& json);
  ReadResult consume_string(std::string_view text, std::string& json);
  ReadResult consume_escape(std::string_view text, std::string& json);
  ReadResult consume_after_value(std::string_view text, std::string& json);
  ReadResult end(std::string& json);

  void begin_value(std::string& json);
  void open(Container container, std::string& json);
  bool closes(char byte) const;
  void close(std::string& json);
  bool is_dict_key() const { return !open_.empty() && open_.back() == Container::dict_key; }

  State state_ = State::key;
  std::vector<Container> open_;
  bool has_key_ = false;
  bool is_over_ = false;
  bool owes_comma_ = false;  // whether the next element, if any, needs a comma before it
  char quote_ = 0;           // quote of the current string
  // State of the current number:
  char last_ = 0;  // last character written
  bool has_point_ = false;
  bool has_exponent_ = false;
};

}  // namespace pagoda::chat
