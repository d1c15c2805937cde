// Tests bounds of numbers.

#include "tests/engine/grammar/schema_cases.hpp"

namespace pagoda::grammar {
namespace {

using test::SchemaCase;

std::vector<SchemaCase> number_cases() {
  return {
      {"integer", R"({"type":"integer"})", {"0", "-7", "1234567890"}, {"1.5", "00", "-", "1e"}},
      {"integers_between",
       R"({"type":"integer","minimum":-12,"exclusiveMaximum":105})",
       {"-12", "-1", "0", "9", "99", "100", "104"},
       {"-13", "105", "1000", "-20", "-0.5"}},
      {"integers_that_are_multiples_of_a_fraction",
       R"({"type":"integer","multipleOf":2.5})",
       {"0", "5", "-10", "100"},
       {"2.5", "7.5", "1", "2"}},
      {"integers_above", R"({"type":"integer","minimum":98})", {"98", "99", "100", "1000"}, {"97", "9", "-98", "0"}},
      {"numbers_between",
       R"({"type":"number","exclusiveMinimum":-0.5,"maximum":2.25})",
       {"-0.49", "0", "0.5", "2.25", "2", "1.999"},
       {"-0.5", "2.26", "3", "-1", "10"}},
      {"numbers_that_are_doubles_apart",
       R"({"type":"number","exclusiveMinimum":5,"exclusiveMaximum":10})",
       {"9.9999999999999", "9.99999999999999", "5.00000000000001", "5.1", "9"},
       {"9.9999999999999999", "9.9999999999999997", "5.0000000000000001", "5.00000000000000000001", "5", "10"}},
      {"numbers_below_ten",
       R"({"type":"number","exclusiveMaximum":10})",
       {"9.9999999999999", "0", "-0.5", "-12345.5"},
       {"9.9999999999999999", "10", "10.0"}},
      {"numbers_above_zero",
       R"({"type":"number","exclusiveMinimum":0,"maximum":1})",
       {"0.000000000000001", "0.5", "1", "1.0"},
       {"0", "0.0", "1.00000000000001", "-0.5"}},
      {"numbers_below_a_large_one",
       R"({"type":"number","minimum":99999999999999,"exclusiveMaximum":123456789012345})",
       {"99999999999999", "99999999999999.5", "123456789012344", "100000000000000"},
       {"123456789012345", "123456789012344.99999", "99999999999998"}},
      {"integers_of_javascript",
       R"({"type":"integer","minimum":-9007199254740991,"maximum":9007199254740991})",
       {"-71", "0", "9007199254740991", "-9007199254740991", "1234567890123456"},
       {"9007199254740992", "-9007199254740992", "1.5", "99999999999999999"}},
      {"integers_of_64_bits",
       R"({"type":"integer","exclusiveMinimum":0,"maximum":9223372036854775807})",
       {"1", "5000000000", "9223372036854775807", "1000000000000000000"},
       {"0", "-1", "9223372036854775808", "10000000000000000000"}},
      {"unsigned_integers_of_64_bits",
       R"({"type":"integer","minimum":9223372036854775808,"maximum":18446744073709551615})",
       {"9223372036854775808", "18446744073709551615"},
       {"9223372036854775807", "18446744073709551616", "0"}},
      {"integers_below_a_negative_bound",
       R"({"type":"integer","exclusiveMaximum":-9223372036854775807})",
       {"-9223372036854775808", "-9999999999999999999"},
       {"-9223372036854775807", "-1", "0"}},
      {"integers_with_bounds_beyond_any",
       R"({"type":"integer","minimum":-1e300,"maximum":1e300})",
       {"0", "-12345", "1234567890123456"},
       {"1.5"}},
      {"bounds_joined",
       R"({"allOf":[{"type":"integer","maximum":9223372036854775806},{"maximum":9223372036854775807,"minimum":9223372036854775805}]})",
       {"9223372036854775805", "9223372036854775806"},
       {"9223372036854775804", "9223372036854775807"}},
      {"numbers_with_great_bounds",
       R"({"type":"number","minimum":-9007199254740991,"exclusiveMaximum":1e20})",
       {"0", "0.125", "-1.5", "123456.789", "99999999999999983616", "-9007199254740991"},
       {"100000000000000000000", "99999999999999999999", "-9007199254740992"}},
  };
}

class SchemaNumbers : public testing::TestWithParam<SchemaCase> {};
INSTANTIATE_TEST_SUITE_P(All, SchemaNumbers, testing::ValuesIn(number_cases()), test::name_of);

TEST_P(SchemaNumbers, AcceptWhatTheTableSays) {
  test::expect_what_the_table_says(GetParam());
}

TEST_P(SchemaNumbers, GiveOnlyValidTexts) {
  test::expect_only_valid_texts(GetParam());
}

}  // namespace
}  // namespace pagoda::grammar
