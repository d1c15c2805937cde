#include "io/wire/structured_fields.hpp"

#include <gtest/gtest.h>

namespace pagoda::wire {
namespace {

struct Read {
  std::optional<StructuredOutput> constraint;
  std::optional<WireError> error;
};

template <class ReadFields>
Read read(const std::string& text, ReadFields read_fields) {
  const Json body = read_json(text, 64).value();
  FieldReader fields(body, FieldReader::Nulls::absent);
  Read result;
  read_fields(fields, result.constraint);
  if (auto status = fields.finish(); !status) result.error = status.error();
  return result;
}

Read structured(const std::string& value) {
  return read("{\"structured_outputs\":" + value + "}",
              [](FieldReader& fields, auto& constraint) { read_structured_outputs(fields, constraint); });
}
Read format(const std::string& value, FormatPlace place = FormatPlace::inside) {
  return read("{\"format\":" + value + "}",
              [&](FieldReader& fields, auto& constraint) { read_format(fields, "format", place, constraint); });
}
Read ollama(const std::string& value) {
  return read("{\"format\":" + value + "}",
              [](FieldReader& fields, auto& constraint) { read_json_format(fields, "format", constraint); });
}

Read guided(const std::string& fields) {
  return read("{" + fields + "}", [](FieldReader& reader, auto& constraint) {
    read_structured_outputs(reader, constraint);
    read_guided(reader, constraint);
  });
}

StructuredOutput constraint(GrammarKind kind, std::string text = {}, std::vector<std::string> choices = {}) {
  return {kind, std::move(text), std::move(choices)};
}

TEST(StructuredOutputs, HaveOneOfTheirKinds) {
  EXPECT_EQ(structured(R"({"json":{"type":"object","properties":{"z":{},"a":{}}}})").constraint,
            constraint(GrammarKind::json_schema, R"({"type":"object","properties":{"z":{},"a":{}}})"));
  EXPECT_EQ(structured(R"({"json":"{\"type\": \"null\"}"})").constraint,
            constraint(GrammarKind::json_schema, R"({"type": "null"})"));
  EXPECT_EQ(structured(R"({"json":true})").constraint, constraint(GrammarKind::json_schema, "true"));
  EXPECT_EQ(structured(R"({"regex":"a+"})").constraint, constraint(GrammarKind::regex, "a+"));
  EXPECT_EQ(structured(R"({"grammar":"root ::= \"a\""})").constraint,
            constraint(GrammarKind::grammar, "root ::= \"a\""));
  EXPECT_EQ(structured(R"({"choice":["a","b"]})").constraint, constraint(GrammarKind::choice, {}, {"a", "b"}));
  EXPECT_EQ(structured(R"({"json_object":true,"regex":null})").constraint, constraint(GrammarKind::json_object));
  EXPECT_EQ(structured("null").constraint, std::nullopt);
}

TEST(StructuredOutputs, ThatAreWrongNameTheirField) {
  const std::pair<const char*, const char*> all[] = {
      {"1", "structured_outputs"},
      {"{}", "structured_outputs"},
      {R"({"regex":"a","choice":["b"]})", "structured_outputs"},
      {R"({"json":1})", "structured_outputs.json"},
      {R"({"regex":1})", "structured_outputs.regex"},
      {R"({"grammar":["a"]})", "structured_outputs.grammar"},
      {R"({"choice":"a"})", "structured_outputs.choice"},
      {R"({"choice":[1]})", "structured_outputs.choice"},
      {R"({"json_object":false})", "structured_outputs.json_object"},
      {R"({"structural_tag":3})", "structured_outputs.structural_tag"},
      {R"({"regex":"a","whitespace_pattern":"b"})", "structured_outputs.whitespace_pattern"},
  };
  for (const auto& [value, param] : all) {
    const auto error = structured(value).error;
    ASSERT_TRUE(error) << value;
    EXPECT_EQ(error->param, param) << value;
    EXPECT_EQ(error->code, WireCode::invalid_request);
  }
}

TEST(StructuredOutputs, HaveVllmsOlderNames) {
  const std::pair<const char*, StructuredOutput> all[] = {
      {R"("guided_json":{"type":"null"})", constraint(GrammarKind::json_schema, R"({"type":"null"})")},
      {R"("guided_json":"{\"type\": \"null\"}")", constraint(GrammarKind::json_schema, R"({"type": "null"})")},
      {R"("guided_regex":"a+","guided_json":null)", constraint(GrammarKind::regex, "a+")},
      {R"("guided_grammar":"root ::= \"a\"")", constraint(GrammarKind::grammar, "root ::= \"a\"")},
      {R"("guided_choice":["a","b"])", constraint(GrammarKind::choice, {}, {"a", "b"})},
      {R"("guided_json_object":true)", constraint(GrammarKind::json_object)},
      {R"("regex":"a+","guided_decoding_backend":"outlines")", constraint(GrammarKind::regex, "a+")},
      {R"("guided_regex":"a","structured_outputs":{"regex":"a"})", constraint(GrammarKind::regex, "a")},
      {R"("ebnf":"root ::= \"a\"")", constraint(GrammarKind::grammar, "root ::= \"a\"")},
      {R"("grammar":"root ::= \"a\"","json_schema":"")", constraint(GrammarKind::grammar, "root ::= \"a\"")},
      {R"("json_schema":"{\"type\": \"null\"}")", constraint(GrammarKind::json_schema, R"({"type": "null"})")}};
  for (const auto& [fields, expected] : all) {
    const Read read = guided(fields);
    EXPECT_FALSE(read.error) << fields << ": " << read.error->message;
    EXPECT_EQ(read.constraint, expected) << fields;
  }
  for (const char* nothing : {R"("guided_json":null)", R"("guided_json_object":false)"}) {
    EXPECT_FALSE(guided(nothing).error);
    EXPECT_EQ(guided(nothing).constraint, std::nullopt);
  }
}

TEST(StructuredOutputs, OfOlderNamesThatAreWrongNameTheirField) {
  const std::pair<const char*, const char*> all[] = {
      {R"("guided_json":1)", "guided_json"},
      {R"("guided_regex":1)", "guided_regex"},
      {R"("guided_grammar":[])", "guided_grammar"},
      {R"("guided_choice":"a")", "guided_choice"},
      {R"("guided_json_object":1)", "guided_json_object"},
      {R"("guided_regex":"a","guided_choice":["a"])", "guided_choice"},
      {R"("guided_regex":"a","structured_outputs":{"regex":"b"})", "guided_regex"},
      {R"("regex":"a","ebnf":"root ::= \"a\"")", "ebnf"},
      {R"("guided_whitespace_pattern":" ")", "guided_whitespace_pattern"},
  };
  for (const auto& [fields, param] : all) EXPECT_EQ(guided(fields).error.value_or(WireError{}).param, param) << fields;
}

TEST(Formats, AreOpenAis) {
  EXPECT_EQ(format(R"({"type":"text"})").constraint, std::nullopt);
  EXPECT_EQ(format("null").constraint, std::nullopt);
  EXPECT_EQ(format(R"({"type":"json_object"})").constraint, constraint(GrammarKind::json_object));
  const auto schema = constraint(GrammarKind::json_schema, R"({"type":"integer"})");
  EXPECT_EQ(format(R"({"type":"json_schema","json_schema":{"name":"n","strict":true,"description":"d",
                      "schema":{"type":"integer"}}})")
                .constraint,
            schema);
  EXPECT_EQ(
      format(R"({"type":"json_schema","name":"n","schema":{"type":"integer"},"strict":null})", FormatPlace::beside)
          .constraint,
      schema);
  EXPECT_EQ(format(R"({"type":"json_schema","json_schema":{"name":"n"}})").constraint,
            constraint(GrammarKind::json_object));
}

TEST(Formats, MayBeLlamaServers) {
  const auto schema = constraint(GrammarKind::json_schema, R"({"type":"integer"})");
  for (const char* type : {"json_object", "json_schema"}) {
    const std::string begin = std::string(R"({"type":")") + type + R"(","schema":)";
    EXPECT_EQ(format(begin + R"({"type":"integer"}})").constraint, schema);
    EXPECT_EQ(format(begin + "3}").error.value_or(WireError{}).param, "format.schema");
  }
  EXPECT_EQ(format(R"({"type":"json_object","schema":null})").constraint, constraint(GrammarKind::json_object));
}

TEST(Formats, ThatAreWrongNameTheirField) {
  const std::pair<const char*, const char*> all[] = {
      {"\"json\"", "format"},
      {"{}", "format.type"},
      {R"({"type":"xml"})", "format.type"},
      {R"({"type":"text","schema":{}})", "format.schema"},
      {R"({"type":"json_schema"})", "format.json_schema"},
      {R"({"type":"json_schema","json_schema":{"schema":{}}})", "format.json_schema.name"},
      {R"({"type":"json_schema","json_schema":{"name":"n","schema":"{}"}})", "format.json_schema.schema"},
      {R"({"type":"json_schema","json_schema":{"name":"n","strict":1}})", "format.json_schema.strict"},
      {R"({"type":"json_schema","json_schema":{"name":"n","x":1}})", "format.json_schema.x"},
  };
  for (const auto& [value, param] : all) {
    const auto error = format(value).error;
    ASSERT_TRUE(error) << value;
    EXPECT_EQ(error->param, param) << value;
  }
}

TEST(Formats, ExcludeStructuredOutputs) {
  const auto both = read(R"({"structured_outputs":{"regex":"a"},"format":{"type":"json_object"}})",
                         [](FieldReader& fields, auto& out) {
                           read_structured_outputs(fields, out);
                           read_format(fields, "format", FormatPlace::inside, out);
                         });
  ASSERT_TRUE(both.error);
  EXPECT_EQ(both.error->param, "format");
}

TEST(Formats, AreOllamas) {
  EXPECT_EQ(ollama("\"json\"").constraint, constraint(GrammarKind::json_object));
  EXPECT_EQ(ollama(R"({"type":"null"})").constraint, constraint(GrammarKind::json_schema, R"({"type":"null"})"));
  for (const char* nothing : {"null", "\"\""}) {
    EXPECT_EQ(ollama(nothing).constraint, std::nullopt);
    EXPECT_FALSE(ollama(nothing).error);
  }
  for (const char* wrong : {"\"xml\"", "1", "[]"}) EXPECT_EQ(ollama(wrong).error.value_or(WireError{}).param, "format");
}

}  // namespace
}  // namespace pagoda::wire
