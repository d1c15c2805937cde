#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request/output.hpp"
#include "io/chat/answer_reading.hpp"

namespace pagoda::json_lines {

/// Finds the tool calls in the answers to one request while they stream.
class CallEvents {
 public:
  explicit CallEvents(std::shared_ptr<const chat::AnswerReading> reading) : reading_(std::move(reading)) {}

  /// Appends a tool_call line for each call that ends with this delta.
  void add(std::string& out, std::string_view id, const SequenceDelta& delta);
  /// Call after the last delta. Appends a line for each call that a limit has cut off, with its arguments up to there.
  void finish(std::string& out, std::string_view id);

 private:
  struct Sequence {
    chat::AnswerParser parser;
    chat::Answer::Part call = {};  ///< call that has not ended yet
  };
  void write(std::string& out, std::string_view id, std::int32_t index, Sequence& sequence);

  std::shared_ptr<const chat::AnswerReading> reading_;
  std::map<std::int32_t, Sequence> sequences_;
  std::vector<chat::AnswerEvent> events_;
};

}  // namespace pagoda::json_lines
