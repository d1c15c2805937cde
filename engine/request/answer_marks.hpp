#pragma once

#include <string>
#include <vector>

namespace pagoda {

/// The texts that a model writes around its thinking and its answer. Stop strings count in the answer only
/// (engine/text/answer_stop_matcher.hpp).
///
///   output = [glue] thinking [glue] answer, bare or within the marks of `content`
struct AnswerMarks {
  struct Content {
    std::string begin;
    std::string end;  ///< may be empty: the part ends with the output

    bool operator==(const Content&) const = default;
    static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.begin, self.end); }
  };

  std::string glue = {};              ///< text that may stand before each part; usually empty
  std::string thinking_begin = {};    ///< mark before a thinking that the output itself may begin
  std::string thinking_end = {};      ///< mark behind the thinking; empty = the model does not think
  std::vector<Content> content = {};  ///< marks around the answer; empty = the answer has no marks
  bool begins_in_thinking = false;    ///< whether the prompt ends within the thinking

  bool operator==(const AnswerMarks&) const = default;
  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.glue, self.thinking_begin, self.thinking_end, self.content, self.begins_in_thinking);
  }
};

}  // namespace pagoda
