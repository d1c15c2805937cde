#include "io/chat/call_reader.hpp"

#include <algorithm>
#include <utility>

#include "kernels/result.hpp"

namespace pagoda::chat {
namespace {

constexpr std::size_t kMaxIdBytes = 64;
constexpr std::size_t kMaxIndexDigits = 20;

bool is_ascii_digit(char byte) {
  return byte >= '0' && byte <= '9';
}

bool is_id_byte(char byte) {
  return is_ascii_digit(byte) || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_' ||
         byte == '-';
}

/// Returns whether a byte may be in a name: it is not white space, and it ends a name in none of the forms.
bool is_name_byte(char byte) {
  constexpr std::string_view kNot = "\"'`<>{}()[],;=\x7f";
  return static_cast<unsigned char>(byte) > 0x20 && kNot.find(byte) == std::string_view::npos;
}

struct Run {
  bool (*has)(char byte);
  std::size_t max_bytes;
};

Run run_of(CallPart::Kind kind, std::size_t id_length) {
  if (kind == CallPart::Kind::name) return {is_name_byte, kMaxNameBytes};
  if (kind == CallPart::Kind::index) return {is_ascii_digit, kMaxIndexDigits};
  return {is_id_byte, id_length > 0 ? id_length : kMaxIdBytes};
}

}  // namespace

CallReader::CallReader(std::shared_ptr<const ToolCallForm> form, IsText is_text)
    : form_(std::move(form)), is_text_(std::move(is_text)), later_call_(form_->call) {
  const bool has_tags =
      !without_leading_white(form_->key_begin).empty() && !form_->key_end.empty() && !form_->value_end.empty();
  PAGODA_ASSERT(form_->arguments != ArgumentForm::tagged || has_tags, "tagged arguments have tags");
  // White space after the arguments and around calls has no meaning.
  const auto arguments = std::ranges::find(later_call_, CallPart::Kind::arguments, &CallPart::kind);
  for (auto part = arguments; part != later_call_.end(); ++part) part->text = without_leading_white(part->text);
  if (!later_call_.empty()) later_call_.back().text = without_outer_white(later_call_.back().text);

  first_call_ = later_call_;
  const bool has_text = !first_call_.empty() && first_call_.front().kind == CallPart::Kind::text;
  if (!has_text) first_call_.insert(first_call_.begin(), CallPart{});
  const std::string begin = form_->begin();
  first_call_.front().text = form_->trigger.empty() ? without_leading_white(begin) : begin;
  if (has_text) later_call_.front().text = without_leading_white(later_call_.front().text);
}

void CallReader::start(bool begins_section) {
  begins_section_ = begins_section;
  part_ = 0;
  head_bytes_ = 0;
  has_arguments_ = false;
}

CallReader::Head CallReader::read_head(std::string_view text) {
  for (; part_ < parts().size(); ++part_) {
    const CallPart& part = parts()[part_];
    const std::string_view rest = text.substr(head_bytes_);
    std::size_t bytes = 0;
    const Match match = match_part(rest, bytes);
    if (match != Match::yes) return {.match = match};
    head_bytes_ += bytes;
    if (part.kind != CallPart::Kind::name) continue;
    ++part_;
    name_ = rest.substr(0, bytes);
    return {Match::yes, head_bytes_, name_};
  }
  return {.match = Match::no};
}

Match CallReader::match_part(std::string_view text, std::size_t& bytes) const {
  const CallPart& part = parts()[part_];
  if (part.kind != CallPart::Kind::text) return match_run(text, bytes);
  bytes = part.text.size();
  return begins_with(text, part.text);
}

Match CallReader::match_run(std::string_view text, std::size_t& bytes) const {
  const CallPart& part = parts()[part_];
  const Run run = run_of(part.kind, form_->id_length);
  const bool has_fixed_size = part.kind == CallPart::Kind::id && form_->id_length > 0;
  const std::string_view after = part_ + 1 < parts().size() ? parts()[part_ + 1].text : std::string_view();
  // Without a trigger, a name counts as the begin of a call only if all of the text after it follows.
  const bool wants_all = part.kind == CallPart::Kind::name && form_->trigger.empty();
  for (bytes = 0; bytes < text.size(); ++bytes) {
    if (has_fixed_size && bytes == run.max_bytes) return Match::yes;
    const bool goes_on = bytes < run.max_bytes && run.has(text[bytes]);
    if (bytes > 0 && !has_fixed_size) {
      if (after.empty() && !goes_on) return Match::yes;
      if (!after.empty() && !goes_on && !wants_all && text[bytes] == after.front()) return Match::yes;
      const Match match = after.empty() ? Match::no : begins_with(text.substr(bytes), after);
      if (match != Match::no) return match;
    }
    if (!goes_on) return Match::no;
  }
  return has_fixed_size && bytes == run.max_bytes ? Match::yes : Match::maybe;
}

ReadResult CallReader::read_body(std::string_view text, std::string& json) {
  std::size_t at = 0;
  while (part_ < parts().size()) {
    const CallPart& part = parts()[part_];
    if (part.kind == CallPart::Kind::arguments) {
      const ReadResult result = read_arguments(text.substr(at), json);
      at += result.bytes;
      if (result.state != ReadResult::State::over) return {result.state, at};
    } else {
      if (has_arguments_ && part.kind == CallPart::Kind::text) at += leading_white(text.substr(at));
      std::size_t bytes = 0;
      const Match match = match_part(text.substr(at), bytes);
      if (match != Match::yes)
        return {match == Match::maybe ? ReadResult::State::more : ReadResult::State::mismatch, at};
      at += bytes;
    }
    ++part_;
  }
  return {ReadResult::State::over, at};
}

ReadResult CallReader::read_arguments(std::string_view text, std::string& json) {
  if (!std::exchange(has_arguments_, true)) start_arguments();
  return std::visit([&](auto& arguments) { return arguments.consume(text, json); }, arguments_);
}

void CallReader::start_arguments() {
  switch (form_->arguments) {
    case ArgumentForm::json:
      arguments_.emplace<JsonArguments>();
      return;
    case ArgumentForm::tagged:
      arguments_.emplace<TaggedArguments>(
          form_, [is_text = is_text_, tool = name_](std::string_view key) { return is_text && is_text(tool, key); });
      return;
    case ArgumentForm::python:
      arguments_.emplace<PythonArguments>();
      return;
  }
}

}  // namespace pagoda::chat
