#include "engine/grammar/lark_syntax.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "engine/grammar/lark_reader.hpp"
#include "engine/grammar/limits.hpp"
#include "engine/text/unicode.hpp"

namespace pagoda::grammar {
namespace {

bool starts_count(char c) {
  return (c >= '0' && c <= '9') || c == ',';
}

class LarkParser : private LarkReader {
 public:
  explicit LarkParser(std::string_view text) : LarkReader(text) {}

  Result<LarkGrammar> parse() {
    if (text::find_invalid_utf8(text_) != std::string_view::npos) {
      return fail(ErrorCode::invalid_request, "the grammar is not UTF-8");
    }
    for (skip_lines(); !at_end(); skip_lines()) {
      if (take("%")) {
        directive();
      } else {
        definition();
      }
      skip_blanks();
      if (!at_end() && !next_is('\n')) refuse("`" + std::string(1, text_[position_]) + "` is not expected here");
    }
    if (error_) return fail(std::move(*error_));
    return std::move(grammar_);
  }

 private:
  using Kind = LarkNode::Kind;

  LarkNode node(Kind kind) const { return {.kind = kind, .line = statement_line_}; }

  void skip_lines() {
    skip_line_ends();
    statement_line_ = line();
  }
  LarkNode refuse(const std::string& what) {
    LarkReader::refuse(what);
    return {};
  }

  /// An expression goes on in the next line if that line begins with a `|`.
  bool take_or() {
    const std::size_t begin = position_;
    skip_line_ends();
    if (take("|")) return true;
    position_ = begin;
    return false;
  }

  // --- statements

  void definition() {
    LarkDefinition made;
    made.line = statement_line_;
    while (take("!") || take("?")) {
    }
    const std::string defined = name();
    if (defined.empty()) {
      refuse("a rule is written `name: ...`");
      return;
    }
    if (next_is('{')) {
      refuse("templates of rules are not supported");
      return;
    }
    if (take("[")) attributes(made);
    if (take(".")) {
      take("-");
      if (!number()) refuse("a priority must be a number");  // it changes how a text is read, not which texts there are
    }
    skip_blanks();
    if (!take(":")) {
      refuse("a rule is written `name: ...`");
      return;
    }
    made.body = alternatives();
    if (!error_ && !grammar_.definitions.emplace(defined, std::move(made)).second) {
      refuse(defined + " is defined twice");
    }
    if (grammar_.definitions.size() > kMaxRules) refuse("too many rules");
  }

  /// Reads llguidance's [capture], [capture="name"], [lazy], [stop="..."], [suffix=/.../], [max_tokens=n].
  void attributes(LarkDefinition& made) {
    ++depth_;
    do {
      skip_blanks();
      const std::string attribute = name();
      skip_blanks();
      std::optional<LarkNode> value;
      if (take("=")) {
        skip_blanks();
        if (attribute == "max_tokens") {
          made.max_tokens = max_tokens();
          skip_blanks();
          continue;
        }
        value = attribute_value();
      }
      if (attribute == "lazy" && !value) {
        made.is_lazy = true;
      } else if ((attribute == "stop" || attribute == "suffix") && value && made.stop.empty()) {
        made.stop.push_back(std::move(*value));
      } else if (attribute != "capture" && attribute != "stop_capture") {  // they only change what a client receives
        refuse("the attribute " + attribute.substr(0, 100) + " is not supported");
      }
      skip_blanks();
    } while (take(","));
    if (!take("]")) refuse("a [ without its ]");
    --depth_;
  }

  std::int32_t max_tokens() {
    const auto max = number();
    if (!max || *max == 0) refuse("max_tokens must be a number above 0");
    return max && *max <= kMaxRepetitions ? static_cast<std::int32_t>(*max) : kUnbounded;
  }

  LarkNode attribute_value() {
    if (next_is('"') || next_is('/')) return atom();
    name();
    number();
    return {};
  }

  void directive() {
    const std::string word = name();
    skip_blanks();
    if (word == "import") {
      import();
    } else if (word == "ignore") {
      grammar_.ignored.push_back(alternatives());
    } else if (word == "llguidance") {
      options();
    } else if (word == "declare") {
      refuse("%declare is not supported: a terminal needs a text");
    } else {
      refuse("%" + word.substr(0, 100) + " is not supported");
    }
  }

  /// Reads %import common.NAME, common.NAME -> OTHER, or common (NAME, ...)
  void import() {
    if (!take("common")) {
      refuse("%import is supported for `common` only");
      return;
    }
    const auto add = [&](const std::string& known, const std::string& as) {
      if (known.empty() || as.empty()) refuse("%import is written `%import common.NAME`");
      grammar_.imports[as] = known;
    };
    skip_blanks();
    if (take("(")) {
      ++depth_;
      do {
        skip_blanks();
        const std::string known = name();
        add(known, known);
        skip_blanks();
      } while (take(","));
      if (!take(")")) refuse("a ( without its )");
      --depth_;
      return;
    }
    if (!take(".")) refuse("%import is written `%import common.NAME`");
    const std::string known = name();
    skip_blanks();
    const bool is_renamed = take("->");
    skip_blanks();
    add(known, is_renamed ? name() : known);
  }

  void options() {
    const auto options = nlohmann::json::parse(json_text(), nullptr, false);
    if (error_) return;
    if (!options.is_object()) {
      refuse("%llguidance must be followed by a JSON object");
      return;
    }
    for (const auto& [option, value] : options.items()) {
      if (option == "allow_initial_skip") {
        grammar_.ignores_first = value == true;
      } else if (option != "no_forcing" && value != false && !value.is_null()) {  // no_forcing only changes the speed
        refuse("the option " + option.substr(0, 100) + " of %llguidance is not supported");
      }
    }
  }

  // --- expressions

  LarkNode alternatives() {
    LarkNode all = node(Kind::choice);
    if (depth_ > kMaxDepth) return refuse("groups are nested deeper than " + std::to_string(kMaxDepth));
    take_or();  // the first alternative may begin with one, too
    do {
      all.parts.push_back(elements());
      skip_blanks();
      if (!take("->")) continue;
      skip_blanks();
      if (name().empty()) refuse("a name must follow ->");  // it names a tree, and no tree is made here
    } while (take_or());
    return all;
  }

  bool at_elements_end() const {
    return at_end() || next_is('\n') || next_is('|') || next_is(')') || next_is(']') ||
           text_.substr(position_).starts_with("->");
  }

  LarkNode elements() {
    LarkNode both = node(Kind::both);
    LarkNode all = node(Kind::sequence);
    for (skip_blanks(); !at_elements_end(); skip_blanks()) {
      if (++num_nodes_ > static_cast<std::size_t>(kMaxExpressions)) return refuse("the grammar is too large");
      if (take("&")) {
        both.parts.push_back(std::exchange(all, node(Kind::sequence)));
      } else {
        all.parts.push_back(repeated(atom()));
      }
    }
    if (both.parts.empty()) return all;
    both.parts.push_back(std::move(all));
    return both;
  }

  LarkNode repeat_of(LarkNode part, std::int64_t min, std::int64_t max) {
    LarkNode made = node(Kind::repeat);
    made.parts.push_back(std::move(part));
    if (min > kMaxRepetitions) return refuse("more than " + std::to_string(kMaxRepetitions) + " repetitions");
    made.min = static_cast<std::int32_t>(min);
    made.max = max > kMaxRepetitions ? kUnbounded : static_cast<std::int32_t>(max);
    return made;
  }

  LarkNode repeated(LarkNode part) {
    for (int num = 0; !at_end(); ++num) {
      if (num > kMaxDepth) return refuse("too many quantifiers");
      if (take("*")) {
        part = repeat_of(std::move(part), 0, kUnbounded);
      } else if (take("+")) {
        part = repeat_of(std::move(part), 1, kUnbounded);
      } else if (take("?")) {
        part = repeat_of(std::move(part), 0, 1);
      } else if (next_is('{') || at_count()) {
        part = counted(std::move(part));
      } else {
        return part;
      }
    }
    return part;
  }

  bool at_count() {
    const std::size_t begin = position_;
    skip_blanks();
    if (next_is('~')) return true;
    position_ = begin;
    return false;
  }

  /// Reads ~n, ~n..m, {n}, {n,}, {,m} or {n,m}
  LarkNode counted(LarkNode part) {
    const bool in_braces = take("{");
    if (!in_braces) take("~");
    skip_blanks();
    const auto min = number();
    std::optional<std::int64_t> max = min;
    skip_blanks();
    if (take(in_braces ? "," : "..")) {
      skip_blanks();
      max = number();
      if (!max && in_braces) max = kUnbounded;
      skip_blanks();
    }
    const bool is_closed = !in_braces || take("}");
    const bool is_count = is_closed && max && (min || in_braces) && (min || max != kUnbounded);
    if (!is_count) return refuse("a repetition is written ~n, ~n..m, {n}, {n,} or {n,m}");
    const std::int64_t min_count = min.value_or(0);
    if (*max != kUnbounded && *max < min_count) return refuse("the bounds of a repetition are swapped");
    return repeat_of(std::move(part), min_count, *max);
  }

  LarkNode group(const char* end) {
    ++depth_;
    LarkNode inside = alternatives();
    skip_blanks();
    if (!take(end)) return refuse(std::string("a group without its ") + end);
    --depth_;
    return inside;
  }

  LarkNode atom() {
    if (take("(")) return group(")");
    if (take("[")) return repeat_of(group("]"), 0, 1);
    if (next_is('"')) return text_or_range();
    if (next_is('/')) return regex();
    if (take("%json")) return json_schema();
    if (next_is('%') || next_is('~') || next_is('@') || next_is('<')) {
      return refuse(std::string("`") + text_[position_] + "...`, as " + kind_of_unsupported() + ", is not supported");
    }
    LarkNode made = node(Kind::name);
    made.text = name();
    if (made.text.empty()) return refuse(std::string("`") + text_[position_] + "` does not begin an element");
    if (next_is('{') && rest().size() > 1 && !starts_count(rest()[1])) {
      return refuse("templates of rules are not supported");
    }
    return made;
  }

  const char* kind_of_unsupported() const {
    switch (text_[position_]) {
      case '%':
        return "a directive inside a rule other than %json";
      case '~':
        return "the complement of a terminal";
      case '@':
        return "a grammar of another list";
      default:
        return "a special token";
    }
  }

  LarkNode json_schema() {
    skip_blanks();
    LarkNode made = node(Kind::json);
    made.text = json_text();
    return made;
  }

  LarkNode text_or_range() {
    LarkNode made = node(Kind::text);
    made.text = quoted();
    if (take("i")) made.flags = "i";
    if (!take("..")) return made;
    const std::string last = next_is('"') ? quoted() : std::string();
    if (error_) return {};
    std::size_t end_of_first = 0;
    std::size_t end_of_last = 0;
    if (!made.text.empty()) made.range.first = text::next_character(made.text, end_of_first);
    if (!last.empty()) made.range.last = text::next_character(last, end_of_last);
    if (made.text.empty() || last.empty() || end_of_first != made.text.size() || end_of_last != last.size()) {
      return refuse("a range is written \"a\"..\"z\"");
    }
    if (made.range.last < made.range.first) return refuse("a range whose ends are swapped");
    made.kind = Kind::range;
    return made;
  }

  LarkNode regex() {
    take("/");
    LarkNode made = node(Kind::regex);
    while (!next_is('/')) {
      if (at_end() || next_is('\n')) return refuse("a regex without its /");
      if (take("\\/")) {
        made.text += '/';
        continue;
      }
      if (next_is('\\')) made.text += text_[position_++];
      if (at_end()) return refuse("a regex without its /");
      made.text += text_[position_++];
    }
    take("/");
    while (!at_end() && std::string_view("imslux").find(text_[position_]) != std::string_view::npos) {
      made.flags += text_[position_++];
    }
    return made;
  }

  std::int64_t statement_line_ = 1;
  std::size_t num_nodes_ = 0;
  LarkGrammar grammar_;
};

}  // namespace

bool is_lark_terminal(std::string_view name) {
  const auto letter = std::ranges::find_if(name, [](char c) { return c != '_'; });
  return letter != name.end() && *letter >= 'A' && *letter <= 'Z';
}

bool is_lark(std::string_view grammar) {
  std::size_t i = 0;
  const auto skip = [&](std::string_view characters) {
    i = std::min(grammar.find_first_not_of(characters, i), grammar.size());
  };
  for (skip(" \t\r\n"); i < grammar.size(); skip(" \t\r\n")) {
    if (grammar[i] != '#' && !grammar.substr(i).starts_with("//")) break;
    i = std::min(grammar.find('\n', i), grammar.size());
  }
  const std::string_view rest = grammar.substr(i);
  if (rest.starts_with("%") || rest.starts_with("?") || rest.starts_with("!")) return true;
  skip("_-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789");
  if (grammar.substr(i).starts_with("[") || grammar.substr(i).starts_with(".") || grammar.substr(i).starts_with("{")) {
    return true;
  }
  skip(" \t");
  return grammar.substr(i).starts_with(":") && !grammar.substr(i).starts_with("::");
}

Result<LarkGrammar> parse_lark(std::string_view grammar) {
  return LarkParser(grammar).parse();
}

}  // namespace pagoda::grammar
