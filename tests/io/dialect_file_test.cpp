#include "io/dialect_file.hpp"

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/io/chat/known_dialects.hpp"

namespace pagoda::io {
namespace {

using chat::AnswerDialect;
using chat::ArgumentForm;
using chat::CallPart;
using chat::Marks;
using chat::ToolCallForm;
using chat::testing::text_part;

std::string dialect_error(const std::string& text) {
  const auto parsed = parse_dialect(text, "d.json");
  if (parsed) return "none";
  EXPECT_EQ(parsed.error().code, ErrorCode::bad_config);
  return parsed.error().message;
}

TEST(DialectFile, ReadsWhatItWrites) {
  AnswerDialect full;
  full.glue = "<|start|>assistant";
  full.thinking = Marks{"<think>", "</think>"};
  full.content = {{"<a>", "</a>"}, {"<b>", ""}};
  full.calls = ToolCallForm{.section_begin = "<｜calls｜>",
                            .separator = "\n",
                            .section_end = "</calls>",
                            .call = {text_part("f."),
                                     {CallPart::Kind::name},
                                     text_part(":"),
                                     {CallPart::Kind::index},
                                     {CallPart::Kind::id},
                                     {CallPart::Kind::arguments},
                                     text_part(";")},
                            .trigger = "<｜calls｜>",
                            .arguments = ArgumentForm::tagged,
                            .key_begin = "<k>",
                            .key_end = "</k>",
                            .json_key_end = "</j>",
                            .value_end = "</v>",
                            .argument_separator = "\n",
                            .id_length = 9,
                            .takes_several = false};
  AnswerDialect python;
  python.calls = ToolCallForm{.call = {text_part("["), {CallPart::Kind::name}, {CallPart::Kind::arguments}},
                              .arguments = ArgumentForm::python};
  for (const auto& dialect : {AnswerDialect{}, full, python}) {
    const auto text = to_text(dialect);
    const auto parsed = parse_dialect(text, "d.json");
    ASSERT_TRUE(parsed) << parsed.error().message << " in " << text;
    EXPECT_EQ(*parsed, dialect);
  }
}

TEST(DialectFile, FieldsThatAreAbsentHaveTheirDefaults) {
  const auto dialect =
      parse_dialect(R"({"calls": {"call": [{"text": "<f>"}, "name", "arguments"]}, "thinking": null})", "d").value();
  const ToolCallForm expected{.call = {text_part("<f>"), {CallPart::Kind::name}, {CallPart::Kind::arguments}}};
  EXPECT_EQ(dialect.calls, expected);
  EXPECT_FALSE(dialect.thinking);
}

TEST(DialectFile, NamesTheFieldThatIsWrong) {
  EXPECT_EQ(dialect_error("[]"), "d.json: must hold one JSON object");
  EXPECT_EQ(dialect_error(R"({"thinkin": 1})"), "d.json: unknown field \"thinkin\"; did you mean \"thinking\"?");
  EXPECT_EQ(dialect_error(R"({"thinking": {"begin": "a", "end": "b", "of": 1}})"),
            "d.json: unknown field \"thinking.of\"");
  EXPECT_EQ(dialect_error(R"({"thinking": {"begin": "a"}})"), "d.json: thinking.end is required");
  EXPECT_EQ(dialect_error(R"({"thinking": {"begin": "", "end": "b"}})"),
            "d.json: thinking.begin must be more than white space");
  EXPECT_EQ(dialect_error(R"({"content": [{"begin": "a", "end": ""}, 3]})"), "d.json: content[1] must be an object");
  EXPECT_EQ(dialect_error(R"({"calls": {}})"), "d.json: calls.call is required");
  EXPECT_EQ(dialect_error(R"({"calls": {"call": ["name", "argument"]}})"),
            R"(d.json: calls.call[1] must be {"text": "..."}, "name", "id", "index" or "arguments")");
  EXPECT_EQ(dialect_error(R"({"calls": {"call": ["name", "arguments"]}})"),
            "d.json: calls.call must begin with a text, or with the name and a text after it that begins with a line "
            "end, or section_begin not be empty");
  EXPECT_EQ(dialect_error(R"({"calls": {"call": [{"text": "<f>"}, "name", "arguments"], "trigger": "<g>"}})"),
            "d.json: calls.trigger must be what section_begin and the call's first text begin with");
  EXPECT_EQ(dialect_error(R"({"calls": {"call": [{"text": "<f>"}, "name", "arguments"], "arguments": "xml"}})"),
            R"(d.json: calls.arguments must be "json", "tagged" or "python")");
  EXPECT_EQ(dialect_error(R"({"calls": {"call": [{"text": "<f>"}, "name", "arguments"], "arguments": "tagged"}})"),
            "d.json: calls.key_begin is required");
  EXPECT_EQ(dialect_error(R"({"calls": {"call": [{"text": "<f>"}, "name", "arguments"], "arguments": "tagged",
                         "key_begin": "\n", "key_end": "=", "value_end": ";"}})"),
            "d.json: calls.key_begin must be more than white space");
  EXPECT_EQ(dialect_error(R"({"thinking": {"begin": "<t>", "end": "\n"}})"),
            "d.json: thinking.end must be more than white space");
  EXPECT_EQ(dialect_error(R"({"calls": {"call": [{"text": "<f>"}, "name", "arguments"], "key_begin": "<k>"}})"),
            "d.json: unknown field \"calls.key_begin\"");
  EXPECT_EQ(dialect_error(R"({"calls": {"call": [{"text": "<f>"}, "name", "arguments"], "id_length": 65}})"),
            "d.json: calls.id_length must be from 0 to 64");
}

TEST(DialectFile, RefusesCallsWithoutOneNameAndArgumentsBehindIt) {
  for (const auto* call :
       {R"([{"text": "<f>"}, "name"])", R"([{"text": "<f>"}, "arguments", "name"])",
        R"([{"text": "<f>"}, "name", "name", "arguments"])", R"([{"text": "<"}, {"text": "f>"}, "name", "arguments"])",
        R"([{"text": "<f>"}, "id", "name", "id", "arguments"])"}) {
    EXPECT_TRUE(
        dialect_error(std::string(R"({"calls": {"call": )") + call + "}}").starts_with("d.json: calls.call must have"))
        << call;
  }
}

TEST(DialectFile, AFileThatCannotBeReadIsNamed) {
  const auto missing = load_dialect("/nowhere/d.json");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message, "cannot read /nowhere/d.json: No such file or directory");
  EXPECT_FALSE(load_dialect(std::filesystem::temp_directory_path()));
}

}  // namespace
}  // namespace pagoda::io
