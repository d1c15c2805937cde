#include "io/json_lines/call_events.hpp"

#include "io/json_lines/protocol.hpp"

namespace pagoda::json_lines {

void CallEvents::add(std::string& out, std::string_view id, const SequenceDelta& delta) {
  auto found = sequences_.find(delta.index);
  if (found == sequences_.end()) found = sequences_.emplace(delta.index, Sequence{reading_->parser()}).first;
  found->second.parser.feed(delta.text, events_);
  write(out, id, delta.index, found->second);
}

void CallEvents::finish(std::string& out, std::string_view id) {
  for (auto& [index, sequence] : sequences_) {
    sequence.parser.finish(events_);
    write(out, id, index, sequence);
  }
}

void CallEvents::write(std::string& out, std::string_view id, std::int32_t index, Sequence& sequence) {
  using Kind = chat::AnswerEvent::Kind;
  for (chat::AnswerEvent& event : events_) {
    if (event.kind == Kind::call_begin) {
      sequence.call = {.kind = Kind::call_begin, .name = std::move(event.text), .call = event.call};
    } else if (event.kind == Kind::arguments) {
      sequence.call.text += event.text;
    } else if (event.kind == Kind::call_end) {
      append_tool_call(out, id, index, sequence.call);
    }
  }
  events_.clear();
}

}  // namespace pagoda::json_lines
