// The parser under seeded mutations of good lines: it never crashes, and what it refuses can be told to the client.

#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "io/json_lines/protocol.hpp"

namespace pagoda::json_lines {
namespace {

const std::vector<std::string> kGoodLines{
    R"({"id":"x","prompt":"Once upon a time","max_tokens":16,"temperature":0.5,"stop":["a","é"],"seed":7})",
    R"({"op":"generate","id":"é","prompt_token_ids":[1,2,3,-4],"logit_bias":{"5":-1.5},"early_stopping":"never"})",
    R"({"op":"cancel","id":"x"})",
    R"({"op":"tokenize","text":"a\n\u00e9\ud83d\ude00","id":"t"})",
    R"({"op":"detokenize","token_ids":[1,2],"id":"d"})",
    R"({"op":"auth","key":"secret"})",
    R"({"op":"ping","id":"p","a":[[[{"b":{"c":[null,true,false,1e9]}}]]]})",
};
const std::vector<std::string> kPieces{"{",
                                       "}",
                                       "[",
                                       "]",
                                       "\"",
                                       ":",
                                       ",",
                                       "\\",
                                       "\\u",
                                       "\\ud83d",
                                       "-",
                                       "1e999",
                                       "9223372036854775808",
                                       "null",
                                       "\"id\":",
                                       "\"op\":",
                                       "\xff",
                                       "\xc3",
                                       std::string(1, '\0'),
                                       "\x7f",
                                       " "};

std::string mutated(std::string line, std::mt19937_64& random) {
  const auto at = [&] { return line.empty() ? 0 : random() % line.size(); };
  for (auto edits = random() % 4 + 1; edits > 0; --edits) {
    switch (random() % 6) {
      case 0:
        line.insert(at(), kPieces[random() % kPieces.size()]);
        break;
      case 1:
        line.erase(at(), random() % 4 + 1);
        break;
      case 2:
        if (!line.empty()) line[at()] = static_cast<char>(random());
        break;
      case 3:
        line = line.substr(0, at());
        break;
      case 4:
        line += line.substr(at());
        break;
      default: {
        const auto& other = kGoodLines[random() % kGoodLines.size()];
        line.insert(at(), other.substr(random() % other.size()));
      }
    }
  }
  return line;
}

TEST(ParseMutation, MutatedLinesAreReadOrRefusedAndNeverCrash) {
  std::mt19937_64 random(2024);
  int refused = 0;
  int read = 0;
  for (int round = 0; round < 60000; ++round) {
    const auto text = mutated(kGoodLines[random() % kGoodLines.size()], random);
    const auto message = parse_line(text);
    if (message) {
      ++read;
      EXPECT_TRUE(nlohmann::json::accept(text)) << text;
      continue;
    }
    ++refused;
    EXPECT_FALSE(message.error().error.message.empty());
    std::string line;
    append_error(line, message.error().id, message.error().error);
    EXPECT_TRUE(nlohmann::json::accept(line)) << line;
    EXPECT_EQ(line.find('\n'), line.size() - 1);
    if (nlohmann::json::accept(text)) continue;
    EXPECT_FALSE(message.error().id.has_value()) << text;
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(read, 100);
}

}  // namespace
}  // namespace pagoda::json_lines
