#include "io/chat/tagged_arguments.hpp"

#include <utility>

namespace pagoda::chat {

ReadResult TaggedArguments::consume(std::string_view text, std::string& json) {
  return consume_steps(text, is_over_, [&](std::string_view rest) { return step(rest, json); });
}

ReadResult TaggedArguments::step(std::string_view text, std::string& json) {
  if (text.empty()) return {};
  switch (state_) {
    case State::key:
      return consume_key(text, json);
    case State::text:
      return consume_text(text, json);
    case State::json_begin:
      return begin_json(text, json);
    case State::json_span: {
      const std::size_t size = span_.consume(text);
      json += text.substr(0, size);
      if (span_.is_over()) state_ = State::json_rest;
      return {ReadResult::State::over, size};
    }
    case State::json_rest:
      return consume_json_rest(text, json);
    case State::after_value:
      return consume_separator(text);
  }
  return {ReadResult::State::mismatch, 0};
}

ReadResult TaggedArguments::end(std::string& json) {
  json += has_key_ ? "}" : "{}";
  is_over_ = true;
  return {ReadResult::State::over, 0};
}

ReadResult TaggedArguments::consume_key(std::string_view text, std::string& json) {
  if (const std::size_t white = leading_white(text)) return {ReadResult::State::over, white};
  const std::string_view begin = without_leading_white(form_->key_begin);
  const Match match = chat::begins_with(text, begin);
  if (match == Match::maybe) return {};
  if (match == Match::no) return end(json);
  text.remove_prefix(begin.size());
  const KeyEnd key_end = end_of_key(text);
  if (key_end.at > kMaxNameBytes) return {ReadResult::State::mismatch, 0};
  if (key_end.match != Match::yes) return {};

  const std::string_view key = text.substr(0, key_end.at);
  json += std::exchange(has_key_, true) ? ", \"" : "{\"";
  append_json_escaped(json, key);
  json += "\": ";
  const bool is_text = form_->json_key_end.empty() ? is_text_ && is_text_(key) : key_end.is_text;
  state_ = is_text ? State::text : State::json_begin;
  if (state_ == State::text) json += '"';
  return {ReadResult::State::over, begin.size() + key_end.at + key_end.size};
}

TaggedArguments::KeyEnd TaggedArguments::end_of_key(std::string_view text) const {
  KeyEnd first{.at = text.size()};
  for (const bool is_text : {true, false}) {
    const std::string& mark = form_->key_end_of(is_text);
    const std::size_t at = find_mark(text, mark);
    const Match match = chat::begins_with(text.substr(at), mark);
    const bool is_first = at < first.at || (at == first.at && match == Match::yes && first.match != Match::yes);
    if (is_first) first = {match, at, mark.size(), is_text};
  }
  return first;
}

ReadResult TaggedArguments::consume_text(std::string_view text, std::string& json) {
  const std::size_t size = find_mark(text, form_->value_end);
  append_json_escaped(json, text.substr(0, size));
  if (chat::begins_with(text.substr(size), form_->value_end) != Match::yes) return {ReadResult::State::more, size};
  json += '"';
  state_ = State::after_value;
  return {ReadResult::State::over, size + form_->value_end.size()};
}

// A value_end that begins with white space must not be skipped as white space before a value.
ReadResult TaggedArguments::begin_json(std::string_view text, std::string& json) {
  const Match match = chat::begins_with(text, form_->value_end);
  if (match == Match::maybe) return {};
  if (match == Match::yes) {
    json += "null";
    state_ = State::after_value;
    return {ReadResult::State::over, form_->value_end.size()};
  }
  if (is_white(text.front())) return {ReadResult::State::over, 1};
  const bool is_span = JsonSpan::begins_with(text.front());
  if (is_span) span_ = {};
  state_ = is_span ? State::json_span : State::json_rest;
  return {ReadResult::State::over, 0};
}

ReadResult TaggedArguments::consume_json_rest(std::string_view text, std::string& json) {
  const std::size_t size = find_mark(text, form_->value_end);
  const std::size_t white = trailing_white(text.substr(0, size));
  if (white < size) {
    json += std::exchange(white_, {});
    json += text.substr(0, size - white);
  }
  white_ += text.substr(size - white, white);
  if (chat::begins_with(text.substr(size), form_->value_end) != Match::yes) return {ReadResult::State::more, size};
  white_.clear();
  state_ = State::after_value;
  return {ReadResult::State::over, size + form_->value_end.size()};
}

ReadResult TaggedArguments::consume_separator(std::string_view text) {
  if (const std::size_t white = leading_white(text)) return {ReadResult::State::over, white};
  const std::string_view separator = without_outer_white(form_->argument_separator);
  const Match match = chat::begins_with(text, separator);
  if (match == Match::maybe) return {};
  state_ = State::key;
  return {ReadResult::State::over, match == Match::yes ? separator.size() : 0};
}

}  // namespace pagoda::chat
