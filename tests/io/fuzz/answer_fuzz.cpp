// libFuzzer entry for models' answers: any bytes, in any known dialect, say the same however they are cut, in events
// that come as they should; without calls and thinking all of them are content. The first byte chooses the dialect, the
// second the options and the pieces.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tests/io/chat/known_dialects.hpp"
#include "tests/io/chat/parsed_answer.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace pagoda::chat;
  static const auto dialects = testing::known_dialects();
  if (size < 2) return 0;
  const AnswerDialect& dialect = dialects[data[0] % dialects.size()].dialect;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  AnswerParser::Options options;
  options.takes_calls = data[1] % 4 != 0;
  options.in_thinking = data[1] % 8 >= 6;
  options.is_text = [](std::string_view, std::string_view key) { return key.size() % 2 == 0; };
  const AnswerParser parser(dialect, options);
  const auto whole = testing::parse_whole(parser, text);
  std::size_t seed = data[1] / 8U;
  const auto next_size = [&] { return 1 + (seed = seed * 5 + 3) % 7; };
  if (testing::parse_cut(parser, text, next_size) != whole) std::abort();

  AnswerDialect bare;
  bare.calls = dialect.calls;
  const auto content = testing::parse_whole(AnswerParser(bare, {}), text);
  if (!text.empty() && (content.size() != 1 || content.front().text != text)) std::abort();
  return 0;
}
