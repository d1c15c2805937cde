// Filters that compare items with each other.

#include <algorithm>

#include "io/jinja/attribute_path.hpp"
#include "io/jinja/compare.hpp"
#include "io/jinja/filters.hpp"
#include "io/jinja/interpreter.hpp"
#include "io/jinja/iterate.hpp"

namespace pagoda::jinja {
namespace {

// An item and the keys by which it is compared.
struct Keyed {
  std::vector<Value> keys;
  Value item;
};

// Way to compare keys: directly, or as lists of keys, in which the first difference decides.
enum class KeyOrder { plain, lists };

bool less_keys(const std::vector<Value>& a, const std::vector<Value>& b, Heap& heap) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!equal(a[i], b[i], heap)) return less(a[i], b[i], heap);
  }
  return false;
}

void sort_keyed(std::vector<Keyed>& items, KeyOrder order, bool is_reversed, Heap& heap) {
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    const Keyed& first = is_reversed ? b : a;
    const Keyed& second = is_reversed ? a : b;
    if (order == KeyOrder::plain) return less(first.keys[0], second.keys[0], heap);
    return less_keys(first.keys, second.keys, heap);
  });
}

Value list_of(std::vector<Keyed>& items, Heap& heap) {
  std::vector<Value> sorted;
  heap.take(items.size() * sizeof(Value));
  for (const Keyed& keyed : items) sorted.push_back(keyed.item);
  return make_list(heap, std::move(sorted));
}

std::vector<Keyed> keyed_items(Interpreter& interpreter, const Value& input, const std::vector<AttributePath>& paths,
                               bool is_case_sensitive, const Value* otherwise = nullptr) {
  Heap& heap = interpreter.heap();
  std::vector<Keyed> items;
  for_each(input, heap, [&](const Value& item) {
    heap.take(sizeof(Keyed) + paths.size() * sizeof(Value));
    Keyed keyed{{}, item};
    for (const AttributePath& path : paths) {
      const Value key = path.of(interpreter, item, otherwise);
      keyed.keys.push_back(is_case_sensitive ? key : ignore_case(heap, key));
    }
    items.push_back(std::move(keyed));
    return true;
  });
  return items;
}

// Splits paths at commas.
std::vector<AttributePath> split_paths(const Value* attribute) {
  std::vector<AttributePath> paths;
  if (attribute == nullptr || !attribute->is_text()) {
    paths.emplace_back(attribute);
    return paths;
  }
  const Text& text = attribute->text;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.view().find(',', begin), text.size());
    const Value path = text.slice(begin, end);
    paths.emplace_back(&path);
    begin = end + 1;
  }
  return paths;
}

Value sort(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"}, 0);
  std::vector<Keyed> items = keyed_items(interpreter, input, split_paths(bound.find(2)), bound.boolean(1, false));
  sort_keyed(items, KeyOrder::lists, bound.boolean(0, false), interpreter.heap());
  return list_of(items, interpreter.heap());
}

Value dictsort(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound("dictsort", arguments, {"case_sensitive", "by", "reverse"}, 0);
  Heap& heap = interpreter.heap();
  const std::string_view by = bound.find(1) != nullptr ? bound.text(1).view() : "key";
  if (by != "key" && by != "value") throw Failure("You can only sort by either \"key\" or \"value\"");
  if (input.is_undefined()) throw Failure(undefined_message(input));
  if (!input.is(Kind::dict)) throw Failure("dictsort needs a dict, not " + std::string(type_name(input)));
  std::vector<Keyed> items;
  for (const auto& [key, value] : input.dict().entries) {
    const Value& compared = by == "key" ? key : value;
    heap.take(sizeof(Keyed) + sizeof(Value));
    items.push_back({{bound.boolean(0, false) ? compared : ignore_case(heap, compared)}, make_pair(heap, key, value)});
  }
  sort_keyed(items, KeyOrder::plain, bound.boolean(2, false), heap);
  return list_of(items, heap);
}

template <bool wants_largest>
Value extreme(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound(wants_largest ? "max" : "min", arguments, {"case_sensitive", "attribute"}, 0);
  Heap& heap = interpreter.heap();
  const AttributePath path(bound.find(1));
  std::vector<AttributePath> paths = {path};
  const std::vector<Keyed> items = keyed_items(interpreter, input, paths, bound.boolean(0, false));
  if (items.empty()) {
    return Value::undefined(Missing::described, make_text(heap, "No aggregated item, sequence was empty."));
  }
  const Keyed* best = items.data();
  for (const Keyed& item : items) {
    if (&item == best) continue;
    const Value& key = item.keys.front();
    if (wants_largest ? less(best->keys.front(), key, heap) : less(key, best->keys.front(), heap)) best = &item;
  }
  return best->item;
}

Value groupby(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  Heap& heap = interpreter.heap();
  const AttributePath path(bound.find(0));
  const bool is_case_sensitive = bound.boolean(2, false);
  std::vector<Keyed> items = keyed_items(interpreter, input, {path}, is_case_sensitive, bound.find(1));
  sort_keyed(items, KeyOrder::plain, false, heap);
  std::vector<Value> groups;
  for (std::size_t begin = 0; begin < items.size();) {
    std::vector<Value> members;
    std::size_t end = begin;
    for (; end < items.size() && equal(items[end].keys[0], items[begin].keys[0], heap); ++end) {
      members.push_back(items[end].item);
    }
    if (end == begin) members.push_back(items[end++].item);  // NaN is not equal to itself
    const Value key = is_case_sensitive ? items[begin].keys[0] : path.of(interpreter, items[begin].item, bound.find(1));
    const Value group = make_pair(heap, key, make_list(heap, std::move(members)));
    static_cast<List*>(group.object)->is_group = true;
    groups.push_back(group);
    begin = end;
  }
  return make_list(heap, std::move(groups));
}

}  // namespace

const std::vector<NamedFilter>& ordering_filters() {
  static const std::vector<NamedFilter> kFilters = {
      {"dictsort", dictsort}, {"groupby", groupby}, {"max", extreme<true>}, {"min", extreme<false>}, {"sort", sort}};
  return kFilters;
}

}  // namespace pagoda::jinja
