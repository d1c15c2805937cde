#include "io/jinja/attribute_path.hpp"

#include "io/jinja/interpreter.hpp"
#include "io/jinja/lookup.hpp"
#include "io/jinja/text_functions.hpp"

namespace pagoda::jinja {

AttributePath::AttributePath(const Value* attribute) {
  if (attribute == nullptr || attribute->is_none()) return;
  if (!attribute->is_text()) {
    parts_.push_back(*attribute);
    return;
  }
  const Text& text = attribute->text;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.view().find('.', begin), text.size());
    const Text part = text.slice(begin, end);
    const bool is_number = !part.empty() && part.view().find_first_not_of("0123456789") == std::string_view::npos;
    const auto number = is_number ? parse_integer(part.view()) : std::nullopt;
    parts_.push_back(number ? Value::of(*number) : Value(part));
    begin = end + 1;
  }
}

Value AttributePath::of(Interpreter& interpreter, const Value& item, const Value* otherwise) const {
  Value value = item;
  for (const Value& part : parts_) {
    value = get_item(interpreter, value, part);
    if (value.is_undefined() && otherwise != nullptr && !otherwise->is_none()) value = *otherwise;
  }
  return value;
}

Value ignore_case(Heap& heap, const Value& value) {
  return value.is_text() ? Value(to_lower(heap, value.text)) : value;
}

}  // namespace pagoda::jinja
