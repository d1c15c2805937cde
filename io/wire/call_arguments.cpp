#include "io/wire/call_arguments.hpp"

#include <utility>

namespace pagoda::wire {
namespace {

constexpr std::size_t kMaxArgumentDepth = 64;
constexpr const char* kOnlyMember = "arguments";

Json as_object(Json value) {
  if (value.is_object()) return value;
  if (value.is_null()) return Json::object();
  auto object = Json::object();
  object[kOnlyMember] = std::move(value);
  return object;
}

}  // namespace

Json read_call_arguments(const Json& arguments) {
  if (!arguments.is_string()) return as_object(arguments);
  const auto& text = arguments.get_ref<const std::string&>();
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return Json::object();
  if (auto value = read_json(text, kMaxArgumentDepth, Integers::exact)) return as_object(std::move(*value));
  auto value = read_cut_json(text, kMaxArgumentDepth);
  return value.is_object() ? value : as_object(text);
}

}  // namespace pagoda::wire
