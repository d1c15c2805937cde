#include "io/wire/structured_fields.hpp"

#include <string>
#include <utility>
#include <vector>

#include "io/wire/exact_json.hpp"

namespace pagoda::wire {
namespace {

StructuredOutput schema_output(const Json& schema) {
  return {GrammarKind::json_schema, json_text(schema), {}};
}

bool is_schema(const Json& value) {
  return value.is_object() || value.is_boolean();
}

/// Reads the constraint of an output from fields, each of which stands for one kind of constraint.
class KindReader {
 public:
  explicit KindReader(FieldReader& fields) : fields_(fields) {}

  void schema(const char* name) {
    with(name, [&](const Json& value) {
      if (value.is_string()) {
        constraint_ = {GrammarKind::json_schema, value.get<std::string>(), {}};
      } else if (is_schema(value)) {
        constraint_ = schema_output(value);
      } else {
        fields_.refuse(name, std::string(name) + " must be a schema, or its text");
      }
    });
  }
  void text(const char* name, GrammarKind kind) {
    with(name, [&](const Json&) {
      constraint_ = {kind, {}, {}};
      fields_.read(name, constraint_.text);
    });
  }
  void text_unless_empty(const char* name, GrammarKind kind) {
    if (const Json* value = fields_.find(name); value != nullptr && *value != "") text(name, kind);
  }
  void schema_unless_empty(const char* name) {
    if (const Json* value = fields_.find(name); value != nullptr && *value != "") schema(name);
  }
  void choice(const char* name) {
    with(name, [&](const Json& value) {
      constraint_ = {GrammarKind::choice, {}, {}};
      if (!value.is_array()) return fields_.refuse(name, std::string(name) + " must be a list of strings");
      fields_.read_strings(name, constraint_.choices);
    });
  }
  void json_object(const char* name) {
    with(name, [&](const Json& value) {
      constraint_ = {GrammarKind::json_object, {}, {}};
      if (value != true) fields_.refuse(name, std::string(name) + " must be true");
    });
  }
  void structural_tag(const char* name) {
    with(name, [&](const Json& value) {
      if (!value.is_string() && !value.is_object()) {
        return fields_.refuse(name, std::string(name) + " must be an object, or its text");
      }
      constraint_ = {GrammarKind::structural_tag, value.is_string() ? value.get<std::string>() : json_text(value), {}};
    });
  }

  /// Returns the names of the fields that are present, in the order in which they were read.
  const std::vector<const char*>& names() const { return names_; }
  /// Returns the constraint of the last field that was read.
  StructuredOutput& constraint() { return constraint_; }

 private:
  void with(const char* name, auto&& read) {
    const Json* value = fields_.find(name);
    if (value == nullptr || value->is_null()) return;
    names_.push_back(name);
    read(*value);
  }

  FieldReader& fields_;
  std::vector<const char*> names_;
  StructuredOutput constraint_;
};

std::string exclude_each_other(const std::string& name, const std::string& other = "structured_outputs") {
  return name + " and " + other + " exclude each other";
}

/// Reads the members of a json_schema.
StructuredOutput read_named_schema(FieldReader& fields) {
  std::string name;
  std::optional<std::string> description;
  fields.read_required("name", name);
  fields.read("description", description);
  if (const Json* strict = fields.find("strict"); strict != nullptr && !strict->is_null() && !strict->is_boolean()) {
    fields.refuse("strict", "strict must be true or false");
  }
  const Json* schema = fields.find("schema");
  if (schema == nullptr || schema->is_null()) return {GrammarKind::json_object, {}, {}};
  if (!is_schema(*schema)) fields.refuse("schema", "schema must be a JSON schema");
  return schema_output(*schema);
}

}  // namespace

void read_structured_outputs(FieldReader& fields, std::optional<StructuredOutput>& out) {
  constexpr const char* kName = "structured_outputs";
  const Json* object = fields.read_object(kName);
  if (object == nullptr) return;
  FieldReader inner(*object, FieldReader::Nulls::absent, "structured_outputs.");
  KindReader kinds(inner);
  kinds.schema("json");
  kinds.text("regex", GrammarKind::regex);
  kinds.text("grammar", GrammarKind::grammar);
  kinds.choice("choice");
  kinds.json_object("json_object");
  kinds.structural_tag("structural_tag");
  out = std::move(kinds.constraint());
  if (auto status = inner.finish(); !status) fields.refuse(std::move(status.error()));
  if (kinds.names().size() != 1) {
    fields.refuse(kName,
                  "structured_outputs must have one of json, regex, choice, grammar, json_object and structural_tag");
  }
}

const char* read_guided(FieldReader& fields, std::optional<StructuredOutput>& out) {
  KindReader kinds(fields);
  kinds.schema("guided_json");
  kinds.text("guided_regex", GrammarKind::regex);
  kinds.text("guided_grammar", GrammarKind::grammar);
  kinds.choice("guided_choice");
  const Json* any_object = fields.find("guided_json_object");
  if (any_object != nullptr && *any_object != false) kinds.json_object("guided_json_object");
  // Names of SGLang and llama-server. An empty text sets no constraint.
  kinds.schema_unless_empty("json_schema");
  kinds.text_unless_empty("regex", GrammarKind::regex);
  for (const char* name : {"ebnf", "grammar"}) kinds.text_unless_empty(name, GrammarKind::grammar);
  fields.skip("guided_decoding_backend");  // there is only one backend
  if (const Json* value = fields.find("guided_whitespace_pattern"); value != nullptr && !value->is_null()) {
    fields.refuse("guided_whitespace_pattern", "guided_whitespace_pattern is not supported");
  }
  const auto& names = kinds.names();
  if (names.empty()) return nullptr;
  if (names.size() > 1) {
    fields.refuse(names[1], exclude_each_other(names[1], names[0]));
  } else if (out && *out != kinds.constraint()) {  // an equal constraint in both fields is accepted
    fields.refuse(names[0], exclude_each_other(names[0]));
  }
  out = std::move(kinds.constraint());
  return names[0];
}

void read_format(FieldReader& fields, const char* name, FormatPlace place, std::optional<StructuredOutput>& out,
                 const std::string& within) {
  const Json* format = fields.read_object(name);
  if (format == nullptr) return;
  std::optional<StructuredOutput> constraint;
  const std::string here = within + name + ".";
  FieldReader inner(*format, FieldReader::Nulls::absent, here);
  std::string type;
  inner.read_required("type", type);
  // llama-server's forms have a schema beside the type.
  const bool has_schema = place == FormatPlace::inside && inner.has("schema") && !inner.has("json_schema");
  if (has_schema && (type == "json_object" || type == "json_schema")) {
    const Json& schema = *inner.find("schema");
    if (!is_schema(schema)) inner.refuse("schema", "schema must be a JSON schema");
    constraint = schema_output(schema);
  } else if (type == "json_object") {
    constraint.emplace();
  } else if (type == "structural_tag" && place == FormatPlace::inside) {
    constraint = StructuredOutput{GrammarKind::structural_tag, json_text(*format), {}};
    for (const char* member : {"format", "structures", "triggers"}) inner.skip(member);  // read by the grammar compiler
  } else if (type == "json_schema" && place == FormatPlace::beside) {
    constraint = read_named_schema(inner);
  } else if (type == "json_schema") {
    const Json* object = inner.read_object("json_schema");
    if (object == nullptr) {
      inner.refuse("json_schema", "json_schema is required");
    } else {
      FieldReader schema(*object, FieldReader::Nulls::absent, here + "json_schema.");
      constraint = read_named_schema(schema);
      if (auto status = schema.finish(); !status) inner.refuse(std::move(status.error()));
    }
  } else if (type != "text") {
    inner.refuse("type", "type must be \"text\", \"json_object\" or \"json_schema\"");
  }
  if (auto status = inner.finish(); !status) fields.refuse(std::move(status.error()));
  if (constraint && out) fields.refuse(name, exclude_each_other(name));
  if (constraint) out = std::move(constraint);
}

void read_schema_format(FieldReader& fields, const char* name, std::optional<StructuredOutput>& out,
                        const std::string& within) {
  const Json* format = fields.read_object(name);
  if (format == nullptr) return;
  FieldReader inner(*format, FieldReader::Nulls::absent, within + name + ".");
  std::string type;
  inner.read_required("type", type);
  if (inner.has_no_error() && type != "json_schema") inner.refuse("type", "type must be \"json_schema\"");
  const Json* schema = inner.find("schema");
  if (schema == nullptr || !is_schema(*schema)) {
    inner.refuse("schema", "schema must be a JSON schema");
  } else {
    out = schema_output(*schema);
  }
  if (auto status = inner.finish(); !status) fields.refuse(std::move(status.error()));
}

void read_json_format(FieldReader& fields, const char* name, std::optional<StructuredOutput>& out) {
  const Json* format = fields.find(name);
  if (format == nullptr || format->is_null() || *format == "") return;
  if (out) return fields.refuse(name, exclude_each_other(name));
  if (*format == "json") {
    out.emplace();
  } else if (format->is_object()) {
    out = schema_output(*format);
  } else {
    fields.refuse(name, std::string(name) + " must be \"json\" or a JSON schema");
  }
}

}  // namespace pagoda::wire
