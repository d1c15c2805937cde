#include "io/jinja/callable.hpp"

#include <algorithm>

namespace pagoda::jinja {

const Value* Arguments::find(std::string_view name) const {
  for (const auto& [key, value] : named) {
    if (key.view() == name) return &value;
  }
  return nullptr;
}

Value Arguments::take_first() {
  const Value first = positional.front();
  positional.erase(positional.begin());
  return first;
}

Bound::Bound(std::string_view function, const Arguments& arguments, std::initializer_list<std::string_view> names,
             std::size_t required)
    : function_(function) {
  const std::string who(function);
  if (arguments.positional.size() > names.size()) {
    throw Failure(who + "() takes " + std::to_string(names.size()) + " arguments but " +
                  std::to_string(arguments.positional.size()) + " were given");
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) given_[i] = &arguments.positional[i];
  for (const auto& [key, value] : arguments.named) {
    const auto* const name = std::find(names.begin(), names.end(), key.view());
    if (name == names.end()) {
      throw Failure(who + "() got an unexpected keyword argument '" + std::string(key.view()) + "'");
    }
    const auto index = static_cast<std::size_t>(name - names.begin());
    if (given_[index] != nullptr) {
      throw Failure(who + "() got multiple values for argument '" + std::string(key.view()) + "'");
    }
    given_[index] = &value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (given_[i] == nullptr) {
      throw Failure(who + "() is missing the argument '" + std::string(*(names.begin() + i)) + "'");
    }
  }
}

bool Bound::boolean(std::size_t index, bool otherwise) const {
  return given_[index] == nullptr ? otherwise : is_true(*given_[index]);
}

std::int64_t Bound::integer(std::size_t index, std::int64_t otherwise) const {
  return given_[index] == nullptr ? otherwise : to_index(*given_[index], function_);
}

const Text& Bound::text(std::size_t index) const {
  const Value& value = *given_[index];
  if (value.is_undefined()) throw Failure(undefined_message(value));
  if (!value.is_text()) {
    throw Failure(std::string(function_) + "() needs a str, not " + std::string(type_name(value)));
  }
  return value.text;
}

std::int64_t to_index(const Value& value, std::string_view what) {
  if (value.is(Kind::integer)) return value.integer;
  if (value.is(Kind::boolean)) return value.boolean ? 1 : 0;
  if (value.is_undefined()) throw Failure(undefined_message(value));
  throw Failure(std::string(what) + " needs an int, not " + std::string(type_name(value)));
}

}  // namespace pagoda::jinja
