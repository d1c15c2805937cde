#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pagoda::chat {

/// Texts before and after a part of an answer.
struct Marks {
  std::string begin;
  std::string end;  ///< may be empty: the part ends with the answer

  bool operator==(const Marks&) const = default;
};

/// A piece of a tool call, as the model writes it.
struct CallPart {
  enum class Kind : std::uint8_t {
    text,       ///< `text`, unchanged
    name,       ///< name of the tool
    id,         ///< id of the call; letters, digits, '_' and '-'
    index,      ///< index of the call in its answer: decimal digits
    arguments,  ///< arguments in the form of ToolCallForm::arguments
  };

  Kind kind = Kind::text;
  std::string text = {};

  bool operator==(const CallPart&) const = default;
};

enum class ArgumentForm : std::uint8_t {
  json,    ///< one JSON object
  tagged,  ///< for each argument: key_begin KEY key_end VALUE value_end; strings are unquoted, other values are JSON
  python,  ///< keyword arguments with Python's literals: city="Paris", days=3, exact=True
};

/// Form in which a model writes tool calls: section_begin, a call, any number of further calls each after `separator`,
/// section_end. The begin of this text is never empty, with one exception: where a call begins with the tool's name and
/// a text that no name contains, only the tools' own names distinguish calls from content.
struct ToolCallForm {
  std::string section_begin = {};
  std::string separator = {};
  std::string section_end = {};
  std::vector<CallPart> call = {};  ///< one name and, after it, one arguments; never two texts in a row
  /// Text with which calls begin anywhere in an answer: section_begin and the call's first text begin with it. Empty
  /// where this text also occurs in content ('{"name": "'): then calls may only begin where the content begins.
  std::string trigger = {};
  ArgumentForm arguments = ArgumentForm::json;
  // For tagged arguments; key_begin, key_end and value_end are not empty:
  std::string key_begin = {};
  std::string key_end = {};
  std::string json_key_end = {};  ///< text after the key of arguments whose value is JSON; empty: key_end is used
  std::string value_end = {};
  std::string argument_separator = {};  ///< text between two arguments
  std::size_t id_length = 0;            ///< length of a call's id; 0: any from 1 to 64
  bool takes_several = true;            ///< whether an answer may have more than one call

  /// Returns the text after the key of a tagged argument.
  const std::string& key_end_of(bool is_text) const { return is_text || json_key_end.empty() ? key_end : json_key_end; }
  /// Returns section_begin and the text before the first name, id or index.
  std::string begin() const {
    const bool has_text = !call.empty() && call.front().kind == CallPart::Kind::text;
    return has_text ? section_begin + call.front().text : section_begin;
  }
  bool begins_with_name() const {
    return begin().empty() && !call.empty() && call.front().kind == CallPart::Kind::name;
  }
  /// Returns the texts with which calls begin: one text for all tools, or for each tool its name and the text after it.
  std::vector<std::string> begins(const std::vector<std::string>& tool_names) const;
  bool operator==(const ToolCallForm&) const = default;
};

/// Form in which a model writes the parts of its answer. The end token of its turn is not part of the form.
///
///   answer = [glue] thinking [glue] content or calls ...
struct AnswerDialect {
  std::string glue = {};                         ///< text without meaning that may stand before each part; mostly empty
  std::optional<Marks> thinking = std::nullopt;  ///< reasoning that is no part of the content
  std::vector<Marks> content = {};               ///< marks around content; empty: content has no marks
  std::optional<ToolCallForm> calls = std::nullopt;

  bool operator==(const AnswerDialect&) const = default;
};

/// Returns all texts that the model writes besides free text, names and arguments.
std::vector<std::string> marks_of(const AnswerDialect& dialect);

}  // namespace pagoda::chat
