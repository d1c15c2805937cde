#include "io/chat/call_cut.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "io/chat/mark_text.hpp"
#include "io/chat/written_calls.hpp"

namespace pagoda::chat {
namespace {

// Placeholders for texts that differ from call to call.
constexpr char kIdSlot = '\x01';
constexpr char kIndexSlot = '\x02';
constexpr char kNameSlot = '\x03';
constexpr char kArgumentsSlot = '\x04';
constexpr std::string_view kSlots = "\x01\x02\x03\x04";

bool has_slot(std::string_view text) {
  return text.find_first_of(kSlots) != std::string_view::npos;
}

void replace_all(std::string& text, const std::string& what, char slot) {
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at))
    text.replace(at, what.size(), 1, slot);
}

/// Returns the texts before, between and after the names and arguments of the calls: 2 per call and 1 more, with slots
/// for ids. Empty where the text does not have all names and arguments.
std::vector<std::string> texts_between(std::string_view text, const std::vector<ProbeCall>& calls,
                                       const ToolCallForm& form) {
  if (has_slot(text)) return {};
  std::vector<std::string> texts;
  std::size_t at = 0;
  for (const auto& call : calls) {
    const auto name = text.find(call.name, at);
    if (name == std::string_view::npos) return {};
    const auto name_end = name + call.name.size();
    const auto arguments = find_arguments(text, name_end, form, call.arguments);
    if (!arguments) return {};
    texts.emplace_back(text.substr(at, name - at));
    texts.emplace_back(text.substr(name_end, arguments->begin - name_end));
    at = arguments->end;
  }
  texts.emplace_back(text.substr(at));
  for (auto& one : texts) {
    for (const auto& call : calls) {
      if (!call.id.empty()) replace_all(one, call.id, kIdSlot);
    }
  }
  return texts;
}

/// If the last difference of both texts is a call's index, 0 in the first and 1 in the second, puts a slot there.
void mark_index(std::string& first, std::string& second) {
  const auto most = std::min(first.size(), second.size());
  std::size_t length = 0;
  while (length < most && first[first.size() - length - 1] == second[second.size() - length - 1]) ++length;
  if (length == most) return;
  auto& zero = first[first.size() - length - 1];
  auto& one = second[second.size() - length - 1];
  if (zero == '0' && one == '1') zero = one = kIndexSlot;
}

void append_text(std::string_view text, std::vector<CallPart>& parts) {
  std::string plain;
  const auto flush = [&] {
    if (!plain.empty()) parts.push_back({CallPart::Kind::text, std::exchange(plain, {})});
  };
  for (const char c : text) {
    if (c == kIdSlot || c == kIndexSlot) {
      flush();
      parts.push_back({c == kIdSlot ? CallPart::Kind::id : CallPart::Kind::index});
    } else {
      plain += c;
    }
  }
  flush();
}

std::vector<CallPart> parts_of(std::string_view begin, std::string_view middle, std::string_view end) {
  std::vector<CallPart> parts;
  append_text(begin, parts);
  parts.push_back({CallPart::Kind::name});
  append_text(middle, parts);
  parts.push_back({CallPart::Kind::arguments});
  append_text(end, parts);
  return parts;
}

}  // namespace

bool cut_calls(const std::string& one_text, const std::vector<ProbeCall>& one,
               const std::optional<std::string>& two_text, const std::vector<ProbeCall>& two, ToolCallForm& form) {
  auto texts = texts_between(one_text, one, form);
  if (texts.empty()) return false;
  auto& head = texts[0];
  auto& middle = texts[1];
  const auto& tail = texts[2];
  if (!two_text) {
    form.call = parts_of(head, middle, marks::without_right_space(tail));
    return true;
  }
  auto both = texts_between(*two_text, two, form);
  if (both.empty() || both[0] != head || both[1] != middle) return false;
  auto& between = both[2];
  mark_index(middle, both[3]);
  if (middle != both[3]) return false;
  mark_index(head, between);

  // White space between calls belongs to the separator, white space before the end of the section to this end.
  const std::string_view whole = head;
  const auto call_begin = marks::without_left_space(whole.substr(whole.size() - marks::common_end(whole, between)));
  const auto after_call = std::string_view(between).substr(0, between.size() - call_begin.size());
  const auto call_end = marks::without_right_space(after_call.substr(0, marks::common_begin(after_call, tail)));
  form.section_begin = whole.substr(0, whole.size() - call_begin.size());
  form.separator = after_call.substr(call_end.size());
  form.section_end = marks::without_right_space(std::string_view(tail).substr(call_end.size()));
  form.call = parts_of(call_begin, middle, call_end);
  return !has_slot(form.section_begin) && !has_slot(form.separator) && !has_slot(form.section_end);
}

std::optional<ToolCallForm> cut_tagged_arguments(const std::string& text, const ProbeCall& call) {
  const std::string_view all = text;
  const auto name = all.find(call.name);
  if (name == std::string_view::npos) return std::nullopt;
  // Texts before, between and after both keys and values.
  std::vector<std::string_view> texts;
  auto at = name + call.name.size();
  for (const auto& [key, value] : call.arguments.items()) {
    for (const std::string& word : {key, value.get<std::string>()}) {
      const auto found = all.find(word, at);
      if (found == std::string_view::npos) return std::nullopt;
      texts.push_back(all.substr(at, found - at));
      at = found + word.size();
    }
  }
  const auto after = all.substr(at);
  PAGODA_ASSERT(texts.size() == 4, "two arguments");
  if (texts[1] != texts[3]) return std::nullopt;

  const auto between = texts[2];
  const auto key_begin =
      marks::without_left_space(texts[0].substr(texts[0].size() - marks::common_end(texts[0], between)));
  const auto after_value = between.substr(0, between.size() - key_begin.size());
  const auto value_end = marks::without_right_space(after.substr(0, marks::common_begin(after, after_value)));
  if (key_begin.empty() || texts[1].empty() || value_end.empty()) return std::nullopt;
  ToolCallForm form{.arguments = ArgumentForm::tagged};
  form.key_begin = key_begin;
  form.key_end = texts[1];
  form.value_end = value_end;
  form.argument_separator = after_value.substr(value_end.size());
  return form;
}

}  // namespace pagoda::chat
