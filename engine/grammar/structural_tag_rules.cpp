#include "engine/grammar/structural_tag_rules.hpp"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "engine/grammar/ebnf_rules.hpp"
#include "engine/grammar/json_rules.hpp"
#include "engine/grammar/lark_rules.hpp"
#include "engine/grammar/lark_syntax.hpp"
#include "engine/grammar/limits.hpp"
#include "engine/grammar/regex_rules.hpp"
#include "engine/grammar/schema_document.hpp"
#include "engine/grammar/schema_rules.hpp"
#include "engine/text/unicode.hpp"

namespace pagoda::grammar {
namespace {

using Json = Schema;
using Texts = std::vector<std::string>;

constexpr std::size_t kMaxLabelBytes = 300;

struct Tag {
  std::string begin;
  Expr content;
  Expr end;
};

/// Turns formats into rules. The first problem ends the conversion: what is made after it is not used.
class TagConverter {
 public:
  Result<Rules> convert(const Json& document) {
    const RuleId root = rules_.add();
    rules_.set(root, whole(document));
    if (error_) return fail(std::move(*error_));
    return std::move(rules_);
  }

 private:
  Expr refuse(const std::string& path, const std::string& problem) {
    if (!error_) {
      const std::string where = path.empty() ? "" : " at " + path;
      error_ = Error{ErrorCode::invalid_request, "the structural tag" + where + ": " + problem};
    }
    return nothing();
  }

  Expr refuse(const std::string& path, const Error& problem) { return refuse(path, problem.message); }

  Expr whole(const Json& document) {
    if (!document.is_object()) return refuse("", "it is not an object");
    if (document.contains("structures")) return legacy(document);
    check_members(document, "", {"format"});
    if (document.contains("type") && document["type"] != "structural_tag") {
      return refuse("/type", "it must be structural_tag");
    }
    return format(member(document, "", "format"), "/format", {});
  }

  Expr legacy(const Json& document) {
    check_members(document, "", {"structures", "triggers"});
    std::vector<Tag> tags;
    for_each(member(document, "", "structures"), "/structures", [&](const Json& one, const std::string& path) {
      check_members(one, path, {"begin", "schema", "end"});
      Tag tag{text(one, path, "begin"), schema(member(one, path, "schema"), at(path, "schema"), JsonStyle::json),
              literal(text(one, path, "end"))};
      tags.push_back(std::move(tag));
    });
    return dispatch(texts(document, "", "triggers"), tags, {}, /*goes_on=*/true, "");
  }

  /// `ends`: texts that may follow. Free text contains none of them.
  Expr format(const Json& f, const std::string& path, const Texts& ends) {
    if (error_) return nothing();
    if (rules_.are_too_many()) return refuse(path, "it is too large");
    if (!f.is_object()) return refuse(path, "it is not an object");
    const std::string type = text(f, path, "type");
    if (error_) return nothing();
    if (type == "const_string") return constant(f, path);
    if (type == "json_schema") return json_schema(f, path, ends);
    if (type == "regex") return regex(f, path);
    if (type == "grammar") return grammar(f, path);
    if (type == "any_text") return any_text(f, path, ends);
    if (type == "sequence") return sequence(elements(f, path, {}));
    if (type == "or") return choice(elements(f, path, ends));
    if (type == "in_order") return in_order(f, path);
    if (type == "optional") return content_of(f, path, 0, 1);
    if (type == "star") return content_of(f, path, 0, kUnbounded);
    if (type == "plus") return content_of(f, path, 1, kUnbounded);
    if (type == "repeat") return repeated(f, path);
    if (type == "tag") {
      const Tag one = tag(f, path);
      return sequence({literal(one.begin), one.content, one.end});
    }
    if (type == "triggered_tags") return triggered_tags(f, path, ends);
    if (type == "tags_with_separator") return tags_with_separator(f, path);
    return refuse(at(path, "type"), "the type " + type.substr(0, 100) + " is not supported");
  }

  // -- members

  void check_members(const Json& object, const std::string& path, std::initializer_list<std::string_view> known) {
    if (!object.is_object()) {
      refuse(path, "it is not an object");
      return;
    }
    for (const auto& [name, unused] : object.items()) {
      if (name != "type" && std::ranges::find(known, name) == known.end()) {
        refuse(at(path, name), "the member is not supported");
      }
    }
  }

  const Json& member(const Json& object, const std::string& path, const char* name) {
    static const Json none;
    const auto found = object.is_object() ? object.find(name) : object.end();
    if (object.is_object() && found != object.end()) return *found;
    refuse(at(path, name), "it is required");
    return none;
  }

  std::string valid(const Json& value, const std::string& path) {
    if (!value.is_string()) {
      refuse(path, "it is not a string");
      return {};
    }
    const auto& string = value.get_ref<const std::string&>();
    if (string.find('\0') != std::string::npos || text::find_invalid_utf8(string) != std::string::npos) {
      refuse(path, "it is not UTF-8, or it contains a NUL character");
    }
    return string;
  }

  std::string text(const Json& object, const std::string& path, const char* name) {
    return valid(member(object, path, name), at(path, name));
  }

  Texts texts(const Json& object, const std::string& path, const char* name) {
    Texts list;
    for_each(member(object, path, name), at(path, name), [&](const Json& one, const std::string& here) {
      list.push_back(valid(one, here));
      if (list.back().empty()) refuse(here, "it is empty");
    });
    return list;
  }

  bool flag(const Json& object, const std::string& path, const char* name) {
    if (!object.contains(name)) return false;
    if (!object[name].is_boolean()) refuse(at(path, name), "it is neither true nor false");
    return object[name] == true;
  }

  void for_each(const Json& list, const std::string& path, const auto& visit) {
    if (!list.is_array() || list.empty()) {
      refuse(path, "it is not a list, or it is empty");
      return;
    }
    if (list.size() > kMaxChoices) {
      refuse(path, "at most " + std::to_string(kMaxChoices) + " are supported");
      return;
    }
    for (std::size_t i = 0; i < list.size() && !error_; ++i) visit(list[i], at(path, std::to_string(i)));
  }

  // -- formats

  Expr constant(const Json& f, const std::string& path) {
    check_members(f, path, {"value"});
    return literal(text(f, path, "value"));
  }

  Expr json_schema(const Json& f, const std::string& path, const Texts& ends) {
    check_members(f, path, {"json_schema", "style", "label"});
    const std::string style = f.contains("style") ? text(f, path, "style") : "json";
    if (style != "json" && style != "python" && style != "text") {
      return refuse(at(path, "style"), "only json, python and text are supported");
    }
    const std::string label = f.contains("label") ? text(f, path, "label").substr(0, kMaxLabelBytes) : std::string();
    const Json& value = member(f, path, "json_schema");
    const std::string here = at(path, "json_schema");
    if (style != "text") return schema(value, here, style == "python" ? JsonStyle::python : JsonStyle::json, label);
    if (error_) return nothing();
    return checked(schema_text_expression(value.dump(), ends), here, label);
  }

  Expr schema(const Json& value, const std::string& path, JsonStyle style, const std::string& label = {}) {
    if (error_) return nothing();
    return checked(schema_expression(value.dump(), rules_, style == JsonStyle::json ? json_ : python_), path, label);
  }

  /// An error names the label, if there is one, rather than the place in the tag.
  Expr checked(const Result<Expr>& expression, const std::string& path, const std::string& label) {
    if (expression) return *expression;
    if (label.empty()) return refuse(path, expression.error());
    error_ = Error{ErrorCode::invalid_request, label + ": " + expression.error().message};
    return nothing();
  }

  Expr regex(const Json& f, const std::string& path) {
    check_members(f, path, {"pattern"});
    auto expression = regex_expression(text(f, path, "pattern"));
    return expression ? *expression : refuse(at(path, "pattern"), expression.error());
  }

  Expr grammar(const Json& f, const std::string& path) {
    check_members(f, path, {"grammar"});
    const std::string own = text(f, path, "grammar");
    const auto other = is_lark(own) ? lark_rules(own) : ebnf_rules(own);
    return other ? rules_.include(*other) : refuse(at(path, "grammar"), other.error());
  }

  Expr any_text(const Json& f, const std::string& path, Texts ends) {
    check_members(f, path, {"excludes"});
    if (f.contains("excludes") && !(f["excludes"].is_array() && f["excludes"].empty())) {
      const Texts excluded = texts(f, path, "excludes");
      ends.insert(ends.end(), excluded.begin(), excluded.end());
    }
    return rules_.free_text(std::move(ends));
  }

  std::vector<Expr> elements(const Json& f, const std::string& path, const Texts& ends) {
    check_members(f, path, {"elements"});
    std::vector<Expr> parts;
    for_each(member(f, path, "elements"), at(path, "elements"),
             [&](const Json& one, const std::string& here) { parts.push_back(format(one, here, ends)); });
    return parts;
  }

  /// Goes from the last element to the first: what may follow when no element, and when one, has been written.
  Expr in_order(const Json& f, const std::string& path) {
    check_members(f, path, {"elements", "separator"});
    const Expr separator = literal(text(f, path, "separator"));
    std::vector<std::pair<Expr, bool>> parts;
    for_each(member(f, path, "elements"), at(path, "elements"), [&](const Json& one, const std::string& here) {
      check_members(one, here, {"content", "required"});
      Expr content = format(member(one, here, "content"), at(here, "content"), {});
      parts.emplace_back(rule(rules_.add(std::move(content))), flag(one, here, "required"));
    });
    Expr behind_none = empty();
    Expr behind_one = empty();
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
      Expr first = sequence({part->first, behind_one});
      Expr next = sequence({separator, part->first, behind_one});
      behind_none = rule(rules_.add(part->second ? first : choice({first, behind_none})));
      behind_one = rule(rules_.add(part->second ? next : choice({next, behind_one})));
    }
    return behind_none;
  }

  Expr content_of(const Json& f, const std::string& path, std::int32_t min, std::int32_t max) {
    check_members(f, path, {"content"});
    return repeat(format(member(f, path, "content"), at(path, "content"), {}), min, max);
  }

  Expr repeated(const Json& f, const std::string& path) {
    constexpr auto kMaxCount = static_cast<std::uint64_t>(kMaxRepetitions) + 1;
    check_members(f, path, {"content", "min", "max"});
    const auto count = [&](const char* name) -> std::int64_t {
      const Json& value = member(f, path, name);
      if (value.is_number_unsigned()) return static_cast<std::int64_t>(std::min(value.get<std::uint64_t>(), kMaxCount));
      refuse(at(path, name), "it is not a whole number");
      return 0;
    };
    const std::int64_t min = count("min");
    const std::int64_t max = count("max");
    if (max < min) return refuse(at(path, "max"), "it is less than min");
    if (min > kMaxRepetitions) {
      return refuse(at(path, "min"), "at most " + std::to_string(kMaxRepetitions) + " is supported");
    }
    return repeat(format(member(f, path, "content"), at(path, "content"), {}), static_cast<std::int32_t>(min),
                  max > kMaxRepetitions ? kUnbounded : static_cast<std::int32_t>(max));
  }

  Tag tag(const Json& f, const std::string& path) {
    check_members(f, path, {"begin", "content", "end"});
    Texts ends;
    const Json& end = member(f, path, "end");
    if (end.is_array()) {
      for_each(end, at(path, "end"),
               [&](const Json& one, const std::string& here) { ends.push_back(valid(one, here)); });
    } else {
      ends.push_back(valid(end, at(path, "end")));
    }
    std::vector<Expr> parts;
    for (const std::string& one : ends) parts.push_back(literal(one));
    std::erase(ends, "");
    Expr content = format(member(f, path, "content"), at(path, "content"), ends);
    return {text(f, path, "begin"), std::move(content), choice(std::move(parts))};
  }

  std::vector<Tag> tags(const Json& f, const std::string& path) {
    std::vector<Tag> list;
    for_each(member(f, path, "tags"), at(path, "tags"), [&](const Json& one, const std::string& here) {
      if (one.is_object() && one.contains("type") && one["type"] != "tag") {
        refuse(at(here, "type"), "it must be tag");
        return;
      }
      list.push_back(tag(one, here));
    });
    return list;
  }

  Expr triggered_tags(const Json& f, const std::string& path, Texts ends) {
    check_members(f, path, {"triggers", "tags", "at_least_one", "stop_after_first", "excludes"});
    if (f.contains("excludes") && !(f["excludes"].is_array() && f["excludes"].empty())) {
      const Texts excluded = texts(f, path, "excludes");
      ends.insert(ends.end(), excluded.begin(), excluded.end());
    }
    const std::vector<Tag> all = tags(f, path);
    const bool stops = flag(f, path, "stop_after_first");
    const bool begins_with_one = flag(f, path, "at_least_one");
    const Texts triggers = texts(f, path, "triggers");
    if (error_) return nothing();
    if (begins_with_one && stops) return one_of_tags(all);
    Expr rest = dispatch(triggers, all, std::move(ends), !stops, path);
    return begins_with_one ? sequence({one_of_tags(all), std::move(rest)}) : rest;
  }

  static Expr one_of_tags(const std::vector<Tag>& tags) {
    std::vector<Expr> parts;
    for (const Tag& tag : tags) parts.push_back(sequence({literal(tag.begin), tag.content, tag.end}));
    return choice(std::move(parts));
  }

  /// Returns free text in which the rest of one of the tags that begin with a trigger follows the trigger.
  Expr dispatch(const Texts& triggers, const std::vector<Tag>& tags, Texts excluded, bool goes_on,
                const std::string& path) {
    if (error_) return nothing();
    for (const std::string& a : triggers) {
      const auto clashes = [&](const std::string& b) { return &a != &b && a.starts_with(b); };
      if (std::ranges::any_of(triggers, clashes) || std::ranges::any_of(excluded, clashes)) {
        return refuse(at(path, "triggers"), "a trigger begins with another trigger or with an excluded text");
      }
    }
    std::vector<std::vector<Expr>> behind(triggers.size());
    for (std::size_t i = 0; i < tags.size(); ++i) {
      const auto trigger = std::ranges::find_if(triggers, [&](const auto& t) { return tags[i].begin.starts_with(t); });
      if (trigger == triggers.end()) {
        return refuse(at(at(path, "tags"), std::to_string(i)), "it begins with none of the triggers");
      }
      const std::string rest = tags[i].begin.substr(trigger->size());
      behind[static_cast<std::size_t>(trigger - triggers.begin())].push_back(
          sequence({literal(rest), tags[i].content, tags[i].end}));
    }
    std::vector<Trigger> known;
    for (std::size_t i = 0; i < triggers.size(); ++i) {
      if (behind[i].empty()) return refuse(at(at(path, "triggers"), std::to_string(i)), "no tag begins with it");
      known.push_back({triggers[i], rules_.add(choice(std::move(behind[i])))});
    }
    return rules_.free_text(std::move(excluded), std::move(known), goes_on);
  }

  Expr tags_with_separator(const Json& f, const std::string& path) {
    check_members(f, path, {"tags", "separator", "at_least_one", "stop_after_first"});
    Expr one = rule(rules_.add(one_of_tags(tags(f, path))));
    Expr further = sequence({literal(text(f, path, "separator")), one});
    Expr all = flag(f, path, "stop_after_first") ? one : sequence({one, repeat(std::move(further), 0, kUnbounded)});
    return flag(f, path, "at_least_one") ? all : optional(std::move(all));
  }

  Rules rules_;
  JsonRules json_{rules_};
  JsonRules python_{rules_, JsonStyle::python};
  std::optional<Error> error_;
};

}  // namespace

Result<Rules> structural_tag_rules(std::string_view text) {
  const auto document = parse_bounded(text);
  if (!document) return fail(ErrorCode::invalid_request, "the structural tag: " + document.error());
  return TagConverter().convert(*document);
}

}  // namespace pagoda::grammar
