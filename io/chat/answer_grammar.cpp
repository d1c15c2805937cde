#include "io/chat/answer_grammar.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/grammar/schema_document.hpp"
#include "io/chat/argument_format.hpp"
#include "io/wire/exact_json.hpp"

namespace pagoda::chat {
namespace {

using Json = nlohmann::ordered_json;

/// White space as parts of answers are read: of ASCII only. \s in a class that is negated excludes more.
constexpr std::string_view kWhiteSpace = R"( \t\n\r\f\v)";
/// White space that models write after their thinking.
constexpr const char* kSpace = "[ \\n]{0,4}";

// -- formats of a structural tag

Json constant(std::string text) {
  return {{"type", "const_string"}, {"value", std::move(text)}};
}
Json regex(std::string pattern) {
  return {{"type", "regex"}, {"pattern", std::move(pattern)}};
}
Json any_text(std::vector<std::string> excluded = {}) {
  Json format{{"type", "any_text"}};
  if (!excluded.empty()) format["excludes"] = std::move(excluded);
  return format;
}
Json wrapped(const char* type, Json content) {
  return {{"type", type}, {"content", std::move(content)}};
}
Json tag(std::string begin, Json content, std::string end) {
  return {{"type", "tag"}, {"begin", std::move(begin)}, {"content", std::move(content)}, {"end", std::move(end)}};
}
Json schema_format(Json schema) {
  return {{"type", "json_schema"}, {"json_schema", std::move(schema)}};
}
Json one_of(std::vector<Json> formats) {
  if (formats.size() == 1) return std::move(formats.front());
  return {{"type", "or"}, {"elements", std::move(formats)}};
}

/// A sequence of formats; adjacent constants are joined.
class Sequence {
 public:
  Sequence& add(Json format) {
    if (format.at("type") == "sequence") {
      for (auto& element : format["elements"]) add(std::move(element));
    } else if (format.at("type") == "const_string" && !parts_.empty() && parts_.back().at("type") == "const_string") {
      parts_.back()["value"].get_ref<std::string&>() += format["value"].get_ref<const std::string&>();
    } else {
      parts_.push_back(std::move(format));
    }
    return *this;
  }
  Sequence& add_text(const std::string& text) { return text.empty() ? *this : add(constant(text)); }

  Json format() {
    if (parts_.empty()) return constant("");
    if (parts_.size() == 1) return std::move(parts_.front());
    return {{"type", "sequence"}, {"elements", std::move(parts_)}};
  }

 private:
  std::vector<Json> parts_;
};

std::string escaped_class(char c) {
  constexpr std::string_view kSpecial = R"(\]^-[)";
  return kSpecial.find(c) == std::string_view::npos ? std::string(1, c) : std::string{'\\', c};
}

/// Returns a format of texts that do not, after white space, begin with one of `begins`. Only the ASCII characters at
/// the start of each of `begins` count.
Json not_beginning_with(const std::vector<std::string>& begins) {
  std::map<std::string, std::string> next;  // for each prefix of one of `begins`, the characters that continue it
  std::set<std::string> excluded;
  for (std::string begin : begins) {
    begin.erase(0, std::min(begin.find_first_not_of(" \t\n\r\f\v"), begin.size()));
    const auto end = std::ranges::find_if(begin, [](char c) { return static_cast<unsigned char>(c) > 127; });
    begin.erase(end, begin.end());
    if (begin.empty()) continue;
    excluded.insert(begin);
    for (std::size_t i = 0; i < begin.size(); ++i) next[begin.substr(0, i)] += begin[i];
  }
  if (excluded.empty()) return any_text();
  std::vector<Json> ways;
  for (const auto& [known, characters] : next) {
    const bool is_excluded =
        std::ranges::any_of(excluded, [&known = known](const auto& begin) { return known.starts_with(begin); });
    if (is_excluded) continue;
    std::string others = known.empty() ? std::string(kWhiteSpace) : "";
    for (const char c : characters) others += escaped_class(c);
    ways.push_back(Sequence().add_text(known).add(regex("[^" + others + "]")).add(any_text()).format());
    ways.push_back(constant(known));
  }
  return Sequence().add(regex("[" + std::string(kWhiteSpace) + "]*")).add(one_of(std::move(ways))).format();
}

// -- an answer

class AnswerFormat {
 public:
  AnswerFormat(const AnswerDialect& dialect, const ToolUse& use) : dialect_(dialect), use_(use) {}

  Result<Json> whole(Thinking thinking, const std::optional<Json>& content) {
    may_think_ = dialect_.thinking && thinking == Thinking::chosen;
    Sequence parts;
    if (dialect_.thinking && thinking != Thinking::none) parts.add(reasoning(thinking, is_constrained(content)));
    parts.add(dialect_.content.empty() ? bare(content) : marked(content));
    if (error_) return fail(std::move(*error_));
    return parts.format();
  }

 private:
  /// Returns whether the text after the thinking is constrained, so that it must not include leading white space.
  bool is_constrained(const std::optional<Json>& content) const {
    return content || use_.choice == ToolChoice::required;
  }

  Json reasoning(Thinking thinking, bool is_constrained) const {
    const Marks& marks = *dialect_.thinking;
    const bool is_open = thinking == Thinking::open;
    Sequence parts;
    parts.add(tag(is_open ? "" : marks.begin, any_text(), marks.end));
    if (is_constrained && dialect_.glue.empty()) parts.add(regex(kSpace));
    parts.add_text(dialect_.glue);
    return is_open ? parts.format() : wrapped("optional", parts.format());
  }

  /// Returns the format of content without marks.
  Json bare(const std::optional<Json>& content) {
    const ToolCallForm* calls = dialect_.calls ? &*dialect_.calls : nullptr;
    const bool may_call = calls != nullptr && use_.choice != ToolChoice::none;
    if (may_call && use_.choice == ToolChoice::required) return section(*calls);
    if (may_call && content) return one_of({section(*calls), *content});
    if (may_call) return calls->trigger.empty() ? first_or_never(*calls) : triggered(*calls);
    if (content) return *content;
    const bool excludes_calls = calls != nullptr && !use_.tools.empty() && !calls->trigger.empty();
    return excludes_calls ? any_text({calls->trigger}) : any_text();
  }

  /// Returns the format of content between marks. The first marks are those of the content that ends the answer; the
  /// other marks stand around content that may come before it.
  Json marked(const std::optional<Json>& content) {
    Sequence parts;
    const bool may_call = dialect_.calls && use_.choice != ToolChoice::none;
    std::vector<std::string> excluded;  // a call begins with the trigger anywhere
    if (may_call && !dialect_.calls->trigger.empty()) excluded.push_back(dialect_.calls->trigger);
    std::vector<Json> before;
    for (std::size_t i = 1; i < dialect_.content.size() && !content; ++i) {
      const Marks& marks = dialect_.content[i];
      before.push_back(
          Sequence().add(tag(marks.begin, any_text(excluded), marks.end)).add_text(dialect_.glue).format());
    }
    if (!before.empty()) parts.add(wrapped("star", one_of(std::move(before))));
    std::vector<Json> ends;
    if (may_call) ends.push_back(section(*dialect_.calls));
    if (use_.choice != ToolChoice::required) {
      const Marks& marks = dialect_.content.front();
      ends.push_back(tag(marks.begin, content.value_or(any_text(excluded)), marks.end));
    }
    return parts.add(one_of(std::move(ends))).format();
  }

  /// A text that begins with thinking is excluded as well: it must be read as thinking, in which no call can hide.
  Json first_or_never(const ToolCallForm& calls) {
    std::vector<std::string> names;
    for (const Tool& tool : use_.tools) names.push_back(tool.name);
    std::vector<std::string> begins = calls.begins(names);
    if (may_think_) begins.push_back(dialect_.thinking->begin);
    return one_of({section(calls), not_beginning_with(begins)});
  }

  bool takes_several(const ToolCallForm& calls) const { return use_.parallel && calls.takes_several; }

  /// Returns the format of free text with calls in it.
  Json triggered(const ToolCallForm& calls) {
    const bool is_wrapped = !calls.section_begin.empty() || !calls.section_end.empty();
    Json one = tag(calls.begin(), is_wrapped ? rest_of_section(calls) : call(calls, /*without_first_text=*/true), "");
    return {{"type", "triggered_tags"},
            {"triggers", Json::array({calls.trigger})},
            {"tags", Json::array({std::move(one)})},
            {"stop_after_first", is_wrapped || !takes_several(calls)}};
  }

  Json section(const ToolCallForm& calls) {
    return Sequence().add_text(calls.begin()).add(rest_of_section(calls)).format();
  }

  /// Returns the format after the begin of the section.
  Json rest_of_section(const ToolCallForm& calls) {
    Sequence parts;
    parts.add(call(calls, /*without_first_text=*/true));
    if (takes_several(calls)) {
      Json further = Sequence().add_text(calls.separator).add(call(calls, /*without_first_text=*/false)).format();
      parts.add(wrapped("star", std::move(further)));
    }
    return parts.add_text(calls.section_end).format();
  }

  Json call(const ToolCallForm& calls, bool without_first_text) {
    Sequence parts;
    std::size_t i = without_first_text && calls.call.front().kind == CallPart::Kind::text ? 1 : 0;
    for (; i < calls.call.size() && calls.call[i].kind != CallPart::Kind::name; ++i) {
      parts.add(part(calls, calls.call[i], nullptr));
    }
    std::vector<Json> of_tools;
    for (const Tool& tool : use_.tools) {
      Sequence rest;
      for (std::size_t k = i; k < calls.call.size(); ++k) rest.add(part(calls, calls.call[k], &tool));
      of_tools.push_back(rest.format());
    }
    return parts.add(one_of(std::move(of_tools))).format();
  }

  Json part(const ToolCallForm& calls, const CallPart& part, const Tool* tool) {
    switch (part.kind) {
      case CallPart::Kind::text:
        return constant(part.text);
      case CallPart::Kind::name:
        return constant(tool->name);
      case CallPart::Kind::id:
        return regex(calls.id_length > 0 ? "[a-zA-Z0-9]{" + std::to_string(calls.id_length) + "}"
                                         : "[a-zA-Z0-9_-]{1,64}");
      case CallPart::Kind::index:
        return regex("[0-9]{1,3}");
      case CallPart::Kind::arguments:
        break;
    }
    return arguments(calls, *tool);
  }

  Json arguments(const ToolCallForm& calls, const Tool& tool) {
    auto format = argument_format(calls, tool);
    if (format) return std::move(*format);
    if (!error_) error_ = std::move(format.error());
    return constant("");
  }

  const AnswerDialect& dialect_;
  const ToolUse& use_;
  bool may_think_ = false;
  std::optional<Error> error_;
};

/// Converts the older form of a structural tag. Errors in it are left for the grammar to report.
Json of_structures(const Json& document) {
  Json tags = document["structures"];
  for (Json& tag : tags) {
    if (!tag.is_object() || !tag.contains("schema")) continue;
    tag["content"] = schema_format(tag["schema"]);
    tag.erase("schema");
  }
  Json format = document;
  format.erase("structures");
  format["type"] = "triggered_tags";
  format["tags"] = std::move(tags);
  return format;
}

/// Returns the format of a client's constraint.
Result<Json> format_of(const StructuredOutput& constraint) {
  const auto refuse = [](std::string problem) {
    return fail(ErrorCode::invalid_request, std::move(problem), "structured_outputs");
  };
  if (constraint.num_bytes() > kMaxStructuredOutputBytes) {
    return refuse("the grammar has " + std::to_string(constraint.num_bytes()) + " bytes; at most " +
                  std::to_string(kMaxStructuredOutputBytes) + " are supported");
  }
  const auto parsed = [&]() -> Result<Json> {
    auto value = grammar::parse_bounded(constraint.text);
    if (!value) return refuse("the structured output: " + value.error());
    return std::move(*value);
  };
  switch (constraint.kind) {
    case GrammarKind::json_schema: {
      auto schema = parsed();
      if (!schema) return schema;
      return schema_format(std::move(*schema));
    }
    case GrammarKind::json_object:
      return schema_format({{"type", "object"}});
    case GrammarKind::regex:
      return regex(constraint.text);
    case GrammarKind::choice: {
      std::vector<Json> texts;
      for (const std::string& text : constraint.choices) texts.push_back(constant(text));
      return one_of(std::move(texts));
    }
    case GrammarKind::grammar:
      return Json{{"type", "grammar"}, {"grammar", constraint.text}};
    case GrammarKind::structural_tag: {
      auto document = parsed();
      if (!document) return document;
      if (document->is_object() && document->contains("structures")) return of_structures(*document);
      for (const auto& [name, value] : document->items()) {
        const bool is_known = name == "format" || (name == "type" && value == "structural_tag");
        if (!is_known) return refuse("with tools or thinking, a structural tag may have only a type and a format");
      }
      if (document->is_object() && document->contains("format")) return (*document)["format"];
      return refuse("with tools or thinking, a structural tag must have a format");
    }
  }
  return constant("");
}

}  // namespace

Result<std::optional<StructuredOutput>> answer_grammar(const AnswerDialect& dialect, const ToolUse& use,
                                                       Thinking thinking,
                                                       const std::optional<StructuredOutput>& content) {
  const bool knows_calls = dialect.calls && !use.tools.empty();
  if (knows_calls && use.choice != ToolChoice::none) {
    std::size_t num_bytes = 0;
    for (const Tool& tool : use.tools) {
      num_bytes += tool.name.size() + wire::json_text(tool.parameters).size();
    }
    if (num_bytes > kMaxStructuredOutputBytes) {
      return fail(ErrorCode::invalid_request,
                  "the tools' names and parameters have " + std::to_string(num_bytes) + " bytes; at most " +
                      std::to_string(kMaxStructuredOutputBytes) + " are supported",
                  "tools");
    }
  }
  if (!content && !knows_calls) return std::nullopt;
  const bool is_plain = !knows_calls && dialect.content.empty() && (!dialect.thinking || thinking == Thinking::none);
  if (is_plain) return content;
  std::optional<Json> format;
  if (content) {
    auto read = format_of(*content);
    if (!read) return fail(std::move(read.error()));
    format = std::move(*read);
  }
  auto whole = AnswerFormat(dialect, use).whole(thinking, format);
  if (!whole) return fail(std::move(whole.error()));
  const Json document{{"type", "structural_tag"}, {"format", std::move(*whole)}};
  return StructuredOutput{GrammarKind::structural_tag, wire::json_text(document), {}};
}

}  // namespace pagoda::chat
