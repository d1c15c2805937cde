#include "io/wire/structured_fields.hpp"

#include <string>
#include <utility>

namespace pagoda::wire {
namespace {

StructuredOutput schema_output(const Json& schema) {
  return {GrammarKind::json_schema, schema.dump(), {}};
}

bool is_schema(const Json& value) {
  return value.is_object() || value.is_boolean();
}

/// The field of a kind, when it is there; anything else than what `read` takes is refused.
void read_kind(FieldReader& fields, const char* name, int& num_kinds, auto&& read) {
  const Json* value = fields.find(name);
  if (value == nullptr || value->is_null()) return;
  ++num_kinds;
  read(*value);
}

StructuredOutput read_kinds(FieldReader& fields, int& num_kinds) {
  StructuredOutput wish;
  read_kind(fields, "json", num_kinds, [&](const Json& value) {
    if (value.is_string()) {
      wish = {GrammarKind::json_schema, value.get<std::string>(), {}};
    } else if (is_schema(value)) {
      wish = schema_output(value);
    } else {
      fields.refuse("json", "json must be a schema, or its text");
    }
  });
  const auto read_text = [&](const char* name, GrammarKind kind) {
    read_kind(fields, name, num_kinds, [&](const Json&) {
      wish = {kind, {}, {}};
      fields.read(name, wish.text);
    });
  };
  read_text("regex", GrammarKind::regex);
  read_text("grammar", GrammarKind::grammar);
  read_kind(fields, "choice", num_kinds, [&](const Json& value) {
    wish = {GrammarKind::choice, {}, {}};
    if (!value.is_array()) return fields.refuse("choice", "choice must be a list of strings");
    fields.read_strings("choice", wish.choices);
  });
  read_kind(fields, "json_object", num_kinds, [&](const Json& value) {
    wish = {GrammarKind::json_object, {}, {}};
    if (value != true) fields.refuse("json_object", "json_object must be true");
  });
  read_kind(fields, "structural_tag", num_kinds, [&](const Json& value) {
    if (!value.is_string() && !value.is_object()) {
      return fields.refuse("structural_tag", "structural_tag must be an object, or its text");
    }
    wish = {GrammarKind::structural_tag, value.is_string() ? value.get<std::string>() : value.dump(), {}};
  });
  return wish;
}

/// The members of a json_schema.
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
  int num_kinds = 0;
  out = read_kinds(inner, num_kinds);
  if (auto status = inner.finish(); !status) fields.refuse(std::move(status.error()));
  if (num_kinds != 1) {
    fields.refuse(kName,
                  "structured_outputs must have one of json, regex, choice, grammar, json_object and structural_tag");
  }
}

void read_format(FieldReader& fields, const char* name, FormatPlace place, std::optional<StructuredOutput>& out,
                 const std::string& within) {
  const Json* format = fields.read_object(name);
  if (format == nullptr) return;
  std::optional<StructuredOutput> wish;
  const std::string here = within + name + ".";
  FieldReader inner(*format, FieldReader::Nulls::absent, here);
  std::string type;
  inner.read_required("type", type);
  if (type == "json_object") {
    wish.emplace();
  } else if (type == "structural_tag" && place == FormatPlace::inside) {
    wish = StructuredOutput{GrammarKind::structural_tag, format->dump(), {}};
    for (const char* member : {"format", "structures", "triggers"}) inner.skip(member);  // the grammar's to read
  } else if (type == "json_schema" && place == FormatPlace::beside) {
    wish = read_named_schema(inner);
  } else if (type == "json_schema") {
    const Json* object = inner.read_object("json_schema");
    if (object == nullptr) {
      inner.refuse("json_schema", "json_schema is required");
    } else {
      FieldReader schema(*object, FieldReader::Nulls::absent, here + "json_schema.");
      wish = read_named_schema(schema);
      if (auto status = schema.finish(); !status) inner.refuse(std::move(status.error()));
    }
  } else if (type != "text") {
    inner.refuse("type", "type must be \"text\", \"json_object\" or \"json_schema\"");
  }
  if (auto status = inner.finish(); !status) fields.refuse(std::move(status.error()));
  if (wish && out) fields.refuse(name, std::string(name) + " and structured_outputs exclude each other");
  if (wish) out = std::move(wish);
}

void read_json_format(FieldReader& fields, const char* name, std::optional<StructuredOutput>& out) {
  const Json* format = fields.find(name);
  if (format == nullptr || format->is_null() || *format == "") return;
  if (out) return fields.refuse(name, std::string(name) + " and structured_outputs exclude each other");
  if (*format == "json") {
    out.emplace();
  } else if (format->is_object()) {
    out = schema_output(*format);
  } else {
    fields.refuse(name, std::string(name) + " must be \"json\" or a JSON schema");
  }
}

}  // namespace pagoda::wire
