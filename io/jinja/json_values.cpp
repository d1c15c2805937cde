#include "io/jinja/json_values.hpp"

#include "engine/text/unicode.hpp"
#include "io/wire/exact_json.hpp"

namespace pagoda::jinja {
namespace {

Text to_text(Heap& heap, const std::string& bytes, bool from_input) {
  const bool is_valid = text::find_invalid_utf8(bytes) == std::string_view::npos;
  return is_valid ? make_text(heap, bytes, from_input) : make_text(heap, text::to_valid_utf8(bytes), from_input);
}

Value convert(Heap& heap, const nlohmann::ordered_json& json, bool from_input, int depth) {
  if (depth > heap.limits().max_value_depth) throw Failure("lists are nested too deeply");
  using Type = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Type::boolean:
      return Value::of(json.get<bool>());
    case Type::number_integer:
      return Value::of(json.get<std::int64_t>());
    case Type::number_unsigned: {
      const auto number = json.get<std::uint64_t>();
      if (number > std::numeric_limits<std::int64_t>::max())
        return Value::of_big(make_text(heap, std::to_string(number)));
      return Value::of(static_cast<std::int64_t>(number));
    }
    case Type::number_float:
      return Value::of(json.get<double>());
    case Type::string:
      return to_text(heap, json.get_ref<const std::string&>(), from_input);
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(convert(heap, item, from_input, depth + 1));
      const Value list = make_list(heap, std::move(items));
      static_cast<List*>(list.object)->from_input = from_input;
      return list;
    }
    case Type::object: {
      auto* dict = heap.make<Dict>();
      dict->from_input = from_input;
      for (const auto& [key, value] : json.items()) {
        dict->set(heap, to_text(heap, key, from_input), convert(heap, value, from_input, depth + 1));
      }
      return {Kind::dict, dict};
    }
    case Type::binary:
      return Value::of_big(make_text(heap, wire::big_integer_digits(json)));
    default:
      return {};
  }
}

}  // namespace

Value to_value(Heap& heap, const nlohmann::ordered_json& json, bool from_input) {
  return convert(heap, json, from_input, 1);
}

}  // namespace pagoda::jinja
