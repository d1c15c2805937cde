#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pagoda::chat {

/// What stands before and after a part of an answer.
struct Marks {
  std::string begin;
  std::string end;  ///< may be empty: the part ends with the answer

  bool operator==(const Marks&) const = default;
};

/// A piece of a tool call, as the model writes it.
struct CallPart {
  enum class Kind : std::uint8_t {
    text,       ///< `text`, as it is
    name,       ///< of the tool
    id,         ///< of the call; letters, digits, '_' and '-'
    index,      ///< of the call in its answer: decimal digits
    arguments,  ///< in the form that ToolCallForm::arguments says
  };

  Kind kind = Kind::text;
  std::string text = {};

  bool operator==(const CallPart&) const = default;
};

enum class ArgumentForm : std::uint8_t {
  json,    ///< one JSON object
  tagged,  ///< for each argument: key_begin KEY key_end VALUE value_end; texts as they are, other values as JSON
  python,  ///< keyword arguments with Python's literals: city="Paris", days=3, exact=True
};

/// How a model calls tools: section_begin, a call, any number of further ones each behind `separator`, section_end. The
/// begin of all that is never empty, but where a call begins with the tool's name and a text behind that which no name
/// has: then only the tools' own names tell calls from content.
struct ToolCallForm {
  std::string section_begin = {};
  std::string separator = {};
  std::string section_end = {};
  std::vector<CallPart> call = {};  ///< one name and, behind it, one arguments; no two texts in a row
  /// With what calls begin wherever it stands in an answer: where section_begin and the call's first text begin with
  /// it. Empty where that is no sign of its own ('{"name": "'): then calls may only begin where the content does.
  std::string trigger = {};
  ArgumentForm arguments = ArgumentForm::json;
  // Of tagged arguments, where key_begin, key_end and value_end are not empty:
  std::string key_begin = {};
  std::string key_end = {};
  std::string json_key_end = {};  ///< of those whose value is JSON; empty: key_end, whatever the value is
  std::string value_end = {};
  std::string argument_separator = {};  ///< between two of them
  std::size_t id_length = 0;            ///< of a call's id; 0: any from 1 to 64
  bool takes_several = true;            ///< an answer may have more than one call

  /// What stands behind the key of a tagged argument.
  const std::string& key_end_of(bool is_text) const { return is_text || json_key_end.empty() ? key_end : json_key_end; }
  /// section_begin and what stands before the first name, id or index.
  std::string begin() const {
    const bool has_text = !call.empty() && call.front().kind == CallPart::Kind::text;
    return has_text ? section_begin + call.front().text : section_begin;
  }
  bool begins_with_name() const {
    return begin().empty() && !call.empty() && call.front().kind == CallPart::Kind::name;
  }
  /// With what calls begin: the same for all tools, or for each its name and the text behind it.
  std::vector<std::string> begins(const std::vector<std::string>& tool_names) const;
  bool operator==(const ToolCallForm&) const = default;
};

/// How a model writes what is not simply the text of its answer. What ends its turn (an end token) is no part of this.
///
///   answer = [glue] thinking [glue] content or calls ...
struct AnswerDialect {
  std::string glue = {};                         ///< may stand before each part, and says nothing; mostly empty
  std::optional<Marks> thinking = std::nullopt;  ///< reasoning that is no part of the content
  std::vector<Marks> content = {};               ///< content stands in one of these; empty: it stands bare
  std::optional<ToolCallForm> calls = std::nullopt;

  bool operator==(const AnswerDialect&) const = default;
};

/// All that the model writes beside texts, names and arguments.
std::vector<std::string> marks_of(const AnswerDialect& dialect);

}  // namespace pagoda::chat
