#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "io/chat/answer_dialect.hpp"
#include "tests/io/chat/parsed_answer.hpp"

namespace pagoda::chat::testing {

/// An answer, and what it says: of calls the arguments as the answer has them where they are JSON, else as JSON of the
/// same value.
struct ComposedAnswer {
  std::string text;
  std::vector<AnswerPart> parts;
};

/// Writes random answers in a dialect, with text that is easily taken for something else.
class AnswerComposer {
 public:
  AnswerComposer(AnswerDialect dialect, std::uint32_t seed) : dialect_(std::move(dialect)), rng_(seed) {}

  ComposedAnswer compose();
  /// Bytes that are of the dialect here and there.
  std::string rubbish(std::size_t num_pieces);
  /// An answer with some bytes changed.
  std::string damaged();
  std::size_t below(std::size_t bound) { return rng_() % bound; }

  /// Which arguments the composed answers write as text.
  static bool is_text(std::string_view tool, std::string_view key) { return (tool.size() + key.size()) % 2 == 0; }

 private:
  bool chance(std::size_t one_in) { return below(one_in) == 0; }
  std::string pick(const std::vector<std::string>& from) { return from[below(from.size())]; }
  std::string white() { return pick({"", "", " ", "\n", "\n\n", " \n\t"}); }
  std::vector<std::string> marks() const;
  std::string words(std::size_t num_pieces);
  std::string words_without(const std::vector<std::string>& marks, const std::string& after);
  std::string name();
  nlohmann::ordered_json value(std::size_t depth);

  void add(AnswerPart::Kind kind, const std::string& text);
  void write_thinking();
  void write_content(bool is_last);
  void write_calls();
  void write_call();
  /// Makes texts of the arguments that are written so.
  std::string tagged_arguments(const std::string& tool, nlohmann::ordered_json& arguments);
  std::string python_arguments(const nlohmann::ordered_json& arguments);
  std::string python_value(const nlohmann::ordered_json& value);
  std::string python_string(const std::string& text);

  AnswerDialect dialect_;
  std::mt19937 rng_;
  ComposedAnswer answer_;
  std::size_t num_calls_ = 0;
};

}  // namespace pagoda::chat::testing
