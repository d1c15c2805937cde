#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/grammar/limits.hpp"
#include "engine/grammar/object_rules.hpp"

namespace pagoda::grammar {
namespace {

/// Limit of the pairs of a place and a count in an array with contains.
constexpr std::size_t kMaxPairs = 4'000;

std::int32_t after(std::int32_t count, std::int32_t num) {
  return count == kUnbounded ? count : std::max(count - num, 0);
}

/// Reads the keywords of one array.
class ArrayReader {
 public:
  ArrayReader(const SchemaAt& s, SchemaRules& converter) : s_(s), converter_(converter) {}

  Expr read() {
    const Schema& schema = s_.schema;
    prefix_ = schema.value("prefixItems", Schema::array());
    if (!prefix_.is_array()) return converter_.refuse(at(s_.path, "prefixItems"), "it is not a list of schemas");
    keyword_ = schema.contains("items") ? "items" : "unevaluatedItems";
    if (schema.contains(keyword_)) {
      if (schema[keyword_].is_array()) {
        return converter_.refuse(at(s_.path, keyword_), "it must not be a list; use prefixItems for a list of schemas");
      }
      item_ = schema[keyword_];
    } else {
      item_ = prefix_.empty();
    }
    min_ = converter_.min_of(s_, "minItems");
    max_ = converter_.max_of(s_, "maxItems");
    if (item_ == false && (max_ == kUnbounded || max_ > std::ssize(prefix_))) {
      max_ = static_cast<std::int32_t>(prefix_.size());
      if (max_ < min_) return nothing();
    }
    if (max_ != kUnbounded && max_ < min_) {
      return converter_.contradiction(s_, "maxItems", "it is less than minItems");
    }
    const bool is_unique = schema.contains("uniqueItems") && schema["uniqueItems"] != false;
    if (is_unique && (max_ == kUnbounded || max_ > 1)) return converter_.json().brackets(unique());
    return converter_.json().brackets(schema.contains("contains") ? containing() : items());
  }

 private:
  std::int32_t num_prefix() const { return static_cast<std::int32_t>(prefix_.size()); }

  std::string path_of(std::int32_t i) const {
    return i < num_prefix() ? at(at(s_.path, "prefixItems"), std::to_string(i)) : at(s_.path, keyword_);
  }
  const Schema& item(std::int32_t i) const { return i < num_prefix() ? prefix_[static_cast<std::size_t>(i)] : item_; }

  /// Builds the items from the last to the first: rule `i` matches item `i` and the items that may follow it.
  Expr items() {
    Expr tail = min_ <= num_prefix() ? empty() : nothing();
    const std::int32_t max = max_ == kUnbounded ? kUnbounded : max_ - num_prefix();
    if (item_ != false && (max_ == kUnbounded || max > 0)) {
      const Expr item = converter_.value(item_, at(s_.path, keyword_));
      const Expr next = sequence({converter_.json().comma(), item});
      const std::int32_t min = std::max(min_ - num_prefix(), 0);
      if (num_prefix() > 0) {
        tail = repeat(next, min, max);
      } else {
        tail = sequence({item, repeat(next, after(min, 1), after(max, 1))});
        if (min == 0) tail = optional(std::move(tail));
      }
    }
    for (std::int32_t i = num_prefix(); i-- > 0;) {
      if (max_ != kUnbounded && i >= max_) {
        tail = empty();
        continue;
      }
      std::vector<Expr> parts;
      if (i > 0) parts.push_back(converter_.json().comma());
      parts.push_back(converter_.value(item(i), path_of(i)));
      parts.push_back(std::move(tail));
      const RuleId id = converter_.rules().add(sequence(std::move(parts)));
      tail = min_ <= i ? optional(rule(id)) : rule(id);
    }
    return tail;
  }

  /// Returns items that must differ and are of a few values: in any order or, if that takes too much, in the order of
  /// their enum.
  Expr unique() {
    const auto refuse = [&] {
      return converter_.refuse(at(s_.path, "uniqueItems"),
                               "the keyword is supported only if items have an enum, without prefixItems and contains");
    };
    const auto flat = converter_.flattened({item_, path_of(0)});
    if (!flat || num_prefix() > 0 || s_.schema.contains("contains")) return refuse();
    const Schema& item = flat->schema;
    const auto listed = item.is_object() ? item.find("enum") : item.end();
    if (!item.is_object() || listed == item.end() || !listed->is_array() || listed->size() > kMaxChoices)
      return refuse();
    std::vector<nlohmann::json> known;
    for (const Schema& value : *listed) {
      const auto is_valid = converter_.accepts(item, value);
      if (!is_valid) return refuse();
      if (!*is_valid || std::ranges::find(known, nlohmann::json(value)) != known.end()) continue;
      known.emplace_back(value);
      values_.push_back(literal(converter_.json().constant(value)));
    }
    if (values_.size() > kMaxUniqueValues) return refuse();
    return unique_from(0, 0);
  }

  /// Returns what may follow `count` items. `used` has a bit for each value that cannot follow; with many values, it is
  /// the number of the first values that cannot follow.
  Expr unique_from(std::int32_t used, std::int32_t count) {
    constexpr std::size_t kMaxInAnyOrder = 8;
    const bool in_any_order = values_.size() <= kMaxInAnyOrder;
    const auto [place, is_new] = known_.try_emplace({used, count, count == 0});
    if (!is_new) return rule(place->second);
    const RuleId id = place->second = converter_.rules().add(nothing());
    std::vector<Expr> parts;
    if (count >= min_) parts.push_back(empty());
    const bool is_full = max_ != kUnbounded && count >= max_;
    for (std::int32_t i = in_any_order ? 0 : used; !is_full && i < std::ssize(values_); ++i) {
      if (in_any_order && (used >> i & 1) != 0) continue;
      std::vector<Expr> all;
      if (count > 0) all.push_back(converter_.json().comma());
      all.push_back(values_[static_cast<std::size_t>(i)]);
      all.push_back(unique_from(in_any_order ? used | 1 << i : i + 1, count + 1));
      parts.push_back(sequence(std::move(all)));
    }
    converter_.rules().set(id, choice(std::move(parts)));
    return rule(id);
  }

  /// Returns items of which `contains` must accept some. A rule belongs to a place and to the number of such items
  /// before it.
  Expr containing() {
    min_contains_ = converter_.min_of(s_, "minContains", 1);
    max_contains_ = converter_.max_of(s_, "maxContains");
    if (min_contains_ == 0 && max_contains_ == kUnbounded) return items();
    last_place_ = std::max(max_ == kUnbounded ? min_ : max_, num_prefix());
    last_count_ = max_contains_ == kUnbounded ? min_contains_ : max_contains_;
    if (static_cast<std::size_t>(last_place_ + 1) * static_cast<std::size_t>(last_count_ + 1) > kMaxPairs) {
      return converter_.refuse(at(s_.path, "contains"),
                               "the limits of the array and of contains are too large together");
    }
    return from(0, 0, true);
  }

  Expr from(std::int32_t place, std::int32_t count, bool is_first) {
    if (converter_.has_error()) return nothing();
    const auto [known, is_new] = known_.try_emplace({place, count, is_first});
    if (!is_new) return rule(known->second);
    const RuleId id = known->second = converter_.rules().add(nothing());
    std::vector<Expr> parts;
    if (place >= min_ && count >= min_contains_) parts.push_back(empty());
    if ((max_ == kUnbounded || place < max_) && item(place) != false) {
      const std::int32_t next = std::min(place + 1, last_place_);
      const auto add = [&](Schema schema, std::int32_t behind) {
        std::vector<Expr> all;
        if (!is_first) all.push_back(converter_.json().comma());
        all.push_back(converter_.value(schema, path_of(place)));
        all.push_back(from(next, behind, false));
        parts.push_back(sequence(std::move(all)));
      };
      const Schema& wanted = s_.schema["contains"];
      const auto joined = [&](Schema other) {
        return Schema{{"allOf", Schema::array({item(place), std::move(other)})}, {kRewritten, true}};
      };
      if (max_contains_ == kUnbounded) {
        // An item that `contains` accepts need not be counted.
        add(item(place), count);
        if (count < min_contains_) add(joined(wanted), count + 1);
      } else {
        add(joined(Schema{{"not", wanted}}), count);
        if (count < max_contains_) add(joined(wanted), count + 1);
      }
    }
    converter_.rules().set(id, choice(std::move(parts)));
    return rule(id);
  }

  const SchemaAt& s_;
  SchemaRules& converter_;
  Schema prefix_;
  Schema item_;               ///< schema of the items after the prefix
  std::vector<Expr> values_;  ///< the values of items that must differ
  const char* keyword_ = "items";
  std::int32_t min_ = 0;
  std::int32_t max_ = kUnbounded;
  std::int32_t min_contains_ = 0;
  std::int32_t max_contains_ = kUnbounded;
  std::int32_t last_place_ = 0;  ///< all places after it are like it
  std::int32_t last_count_ = 0;
  /// By the place or the used values; by the number of items that were counted; by whether the next item is the first.
  std::map<std::tuple<std::int32_t, std::int32_t, bool>, RuleId> known_;
};

}  // namespace

Expr array_expression(const SchemaAt& schema, SchemaRules& converter) {
  return ArrayReader(schema, converter).read();
}

}  // namespace pagoda::grammar
