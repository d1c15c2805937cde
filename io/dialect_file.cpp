#include "io/dialect_file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "io/wire/field_reader.hpp"

namespace pagoda::io {
namespace {

using chat::ArgumentForm;
using chat::CallPart;
using chat::Marks;
using chat::ToolCallForm;
using wire::FieldReader;
using wire::Json;

constexpr std::size_t kMaxDialectDepth = 8;
constexpr std::int64_t kMaxIdLength = 64;

constexpr std::array<std::pair<const char*, CallPart::Kind>, 4> kPartWords{{
    {"name", CallPart::Kind::name},
    {"id", CallPart::Kind::id},
    {"index", CallPart::Kind::index},
    {"arguments", CallPart::Kind::arguments},
}};
constexpr std::array<std::pair<const char*, ArgumentForm>, 3> kFormWords{{
    {"json", ArgumentForm::json},
    {"tagged", ArgumentForm::tagged},
    {"python", ArgumentForm::python},
}};

template <class Words>
auto value_of(const Words& words, const Json& word) {
  const auto found = std::ranges::find_if(words, [&](const auto& known) { return word == known.first; });
  return found == words.end() ? std::nullopt : std::optional(found->second);
}

template <class Words, class Value>
const char* word_of(const Words& words, Value value) {
  return std::ranges::find(words, value, [](const auto& known) { return known.second; })->first;
}

/// Reads the object `value` of the field `name` with `read(fields)`. Refuses fields that `read` did not read.
template <class Read>
void read_inner(FieldReader& outer, const char* name, const Json& value, Read&& read) {
  if (!value.is_object()) return outer.refuse(name, std::string(name) + " must be an object");
  FieldReader fields(value, FieldReader::Nulls::values, std::string(name) + ".");
  read(fields);
  if (auto finished = fields.finish(); !finished) outer.refuse(std::move(finished.error()));
}

bool is_white(std::string_view text) {
  return text.find_first_not_of(" \t\n\r\f\v") == std::string_view::npos;
}

/// Reads a required mark. A mark must have a character that is not white space.
void read_mark(FieldReader& fields, const char* name, std::string& text) {
  fields.read_required(name, text);
  if (fields.has_no_error() && is_white(text))
    fields.refuse(name, std::string(name) + " must be more than white space");
}

std::optional<CallPart> read_call_part(const Json& part) {
  if (const auto kind = value_of(kPartWords, part)) return CallPart{*kind};
  if (!part.is_object() || part.size() != 1 || !part.contains("text") || !part["text"].is_string()) return std::nullopt;
  auto text = part["text"].get<std::string>();
  return text.empty() ? std::nullopt : std::optional(CallPart{CallPart::Kind::text, std::move(text)});
}

bool is_well_formed(const std::vector<CallPart>& call) {
  const auto count = [&](CallPart::Kind kind) { return std::ranges::count(call, kind, &CallPart::kind); };
  const auto name = std::ranges::find(call, CallPart::Kind::name, &CallPart::kind);
  const bool has_both = count(CallPart::Kind::name) == 1 && count(CallPart::Kind::arguments) == 1 &&
                        std::find_if(name, call.end(), [](const CallPart& part) {
                          return part.kind == CallPart::Kind::arguments;
                        }) != call.end();
  const auto two_texts = std::ranges::adjacent_find(call, [](const CallPart& left, const CallPart& right) {
    return left.kind == CallPart::Kind::text && right.kind == CallPart::Kind::text;
  });
  return has_both && two_texts == call.end() && count(CallPart::Kind::id) <= 1 && count(CallPart::Kind::index) <= 1;
}

void read_call(FieldReader& fields, std::vector<CallPart>& call) {
  const auto* parts = fields.find("call");
  if (parts == nullptr) return fields.refuse("call", "call is required");
  if (!parts->is_array()) return fields.refuse("call", "call must be a list");
  for (std::size_t i = 0; i < parts->size(); ++i) {
    auto part = read_call_part((*parts)[i]);
    if (!part) {
      return fields.refuse(
          "call", "call[" + std::to_string(i) + R"(] must be {"text": "..."}, "name", "id", "index" or "arguments")");
    }
    call.push_back(std::move(*part));
  }
  if (!is_well_formed(call)) {
    fields.refuse(
        "call",
        R"(call must have one "name", after it one "arguments", at most one "id" and "index", and no two texts in a row)");
  }
}

void read_arguments(FieldReader& fields, ToolCallForm& form) {
  if (const auto* word = fields.find("arguments")) {
    const auto value = value_of(kFormWords, *word);
    if (!value) return fields.refuse("arguments", R"(arguments must be "json", "tagged" or "python")");
    form.arguments = *value;
  }
  if (form.arguments != ArgumentForm::tagged) return;
  read_mark(fields, "key_begin", form.key_begin);
  for (const auto& [name, text] : {std::pair("key_end", &form.key_end), std::pair("value_end", &form.value_end)}) {
    fields.read_required(name, *text);
    if (fields.has_no_error() && text->empty()) fields.refuse(name, std::string(name) + " must not be empty");
  }
  fields.read("json_key_end", form.json_key_end);
  fields.read("argument_separator", form.argument_separator);
}

bool has_line_end_behind_name(const ToolCallForm& form) {
  return form.call[1].kind == CallPart::Kind::text && form.call[1].text.starts_with('\n');
}

void read_form(FieldReader& fields, ToolCallForm& form) {
  fields.read("section_begin", form.section_begin);
  fields.read("separator", form.separator);
  fields.read("section_end", form.section_end);
  read_call(fields, form.call);
  read_arguments(fields, form);
  fields.read("takes_several", form.takes_several);
  std::int64_t id_length = 0;
  fields.read("id_length", id_length);
  if (id_length < 0 || id_length > kMaxIdLength) fields.refuse("id_length", "id_length must be from 0 to 64");
  form.id_length = static_cast<std::size_t>(id_length);
  fields.read("trigger", form.trigger);
  if (!fields.has_no_error()) return;
  const bool frames_calls = form.begins_with_name() ? has_line_end_behind_name(form) : !is_white(form.begin());
  if (!frames_calls) {
    fields.refuse("call",
                  "call must begin with a text, or with the name and a text after it that begins with a line end, or "
                  "section_begin not be empty");
  }
  if (!form.trigger.empty() && is_white(form.trigger))
    fields.refuse("trigger", "trigger must be more than white space");
  if (!form.begin().starts_with(form.trigger)) {
    fields.refuse("trigger", "trigger must be what section_begin and the call's first text begin with");
  }
}

Marks read_marks(FieldReader& fields, bool needs_end) {
  Marks marks;
  read_mark(fields, "begin", marks.begin);
  if (needs_end) {
    read_mark(fields, "end", marks.end);
  } else {
    fields.read_required("end", marks.end);
  }
  return marks;
}

chat::AnswerDialect read_dialect(FieldReader& fields) {
  chat::AnswerDialect dialect;
  fields.read("glue", dialect.glue);
  if (const auto* thinking = fields.find("thinking"); thinking != nullptr && !thinking->is_null()) {
    read_inner(fields, "thinking", *thinking, [&](FieldReader& inner) { dialect.thinking = read_marks(inner, true); });
  }
  if (const auto* content = fields.find("content"); content != nullptr && !content->is_array()) {
    fields.refuse("content", "content must be a list");
  } else if (content != nullptr) {
    for (std::size_t i = 0; i < content->size(); ++i) {
      const auto name = "content[" + std::to_string(i) + "]";
      read_inner(fields, name.c_str(), (*content)[i],
                 [&](FieldReader& inner) { dialect.content.push_back(read_marks(inner, false)); });
    }
  }
  if (const auto* calls = fields.find("calls"); calls != nullptr && !calls->is_null()) {
    read_inner(fields, "calls", *calls, [&](FieldReader& inner) { read_form(inner, dialect.calls.emplace()); });
  }
  return dialect;
}

Json written(const Marks& marks) {
  return Json{{"begin", marks.begin}, {"end", marks.end}};
}

Json written(const ToolCallForm& form) {
  auto call = Json::array();
  for (const auto& part : form.call) {
    call.push_back(part.kind == CallPart::Kind::text ? Json{{"text", part.text}}
                                                     : Json(word_of(kPartWords, part.kind)));
  }
  Json object{{"section_begin", form.section_begin},
              {"separator", form.separator},
              {"section_end", form.section_end},
              {"call", std::move(call)},
              {"trigger", form.trigger},
              {"arguments", word_of(kFormWords, form.arguments)}};
  if (form.arguments == ArgumentForm::tagged) {
    object["key_begin"] = form.key_begin;
    object["key_end"] = form.key_end;
    if (!form.json_key_end.empty()) object["json_key_end"] = form.json_key_end;
    object["value_end"] = form.value_end;
    object["argument_separator"] = form.argument_separator;
  }
  object["id_length"] = form.id_length;
  object["takes_several"] = form.takes_several;
  return object;
}

}  // namespace

Result<chat::AnswerDialect> load_dialect(const std::filesystem::path& path) {
  const auto refused = [&](int error) {
    return fail(ErrorCode::bad_config, "cannot read " + path.string() + ": " + std::strerror(error));
  };
  std::ifstream file(path, std::ios::binary);
  if (!file) return refused(errno);
  if (std::error_code ignored; std::filesystem::is_directory(path, ignored)) return refused(EISDIR);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  return parse_dialect(text, path.string());
}

Result<chat::AnswerDialect> parse_dialect(std::string_view text, const std::string& name) {
  const auto refused = [&](wire::WireError error) {
    return fail(ErrorCode::bad_config, name + ": " + error.message, std::move(error.param));
  };
  const auto value = wire::read_json(text, kMaxDialectDepth);
  if (!value) return refused(value.error());
  if (!value->is_object()) return fail(ErrorCode::bad_config, name + ": must hold one JSON object");
  FieldReader fields(*value);
  auto dialect = read_dialect(fields);
  if (auto finished = fields.finish(); !finished) return refused(std::move(finished.error()));
  return dialect;
}

std::string to_text(const chat::AnswerDialect& dialect) {
  Json object = Json::object();
  if (!dialect.glue.empty()) object["glue"] = dialect.glue;
  if (dialect.thinking) object["thinking"] = written(*dialect.thinking);
  if (!dialect.content.empty()) {
    for (const auto& marks : dialect.content) object["content"].push_back(written(marks));
  }
  if (dialect.calls) object["calls"] = written(*dialect.calls);
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace pagoda::io
