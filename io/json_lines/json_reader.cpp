#include "io/json_lines/json_reader.hpp"

#include <string>
#include <vector>

namespace pagoda::json_lines {
namespace {

using nlohmann::json;

/// Builds the value from parser events, so that depth and repeated keys are seen before memory is spent on them.
class TreeBuilder : public nlohmann::json_sax<json> {
 public:
  explicit TreeBuilder(std::size_t max_depth) : max_depth_(max_depth) {}

  bool null() override { return add(nullptr) != nullptr; }
  bool boolean(bool value) override { return add(value) != nullptr; }
  bool number_integer(number_integer_t value) override { return add(value) != nullptr; }
  bool number_unsigned(number_unsigned_t value) override { return add(value) != nullptr; }
  bool number_float(number_float_t value, const string_t&) override { return add(value) != nullptr; }
  bool string(string_t& value) override { return add(std::move(value)) != nullptr; }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(json::object()); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    if (open_.size() == 1) field_ = name;
    auto& object = *open_.back();
    if (object.contains(name)) {
      error_ = {WireCode::invalid_request, "key \"" + name + "\" appears twice in one object", field_};
      return false;
    }
    slot_ = &object[std::move(name)];
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& cause) override {
    constexpr int kNumberOutOfRange = 406;  // nlohmann_json's number of this error
    if (cause.id == kNumberOutOfRange) {
      error_ = {WireCode::invalid_request, "a number is too large", field_};
    } else {
      error_ = {WireCode::invalid_json, "not valid JSON at byte " + std::to_string(position)};
    }
    return false;
  }

  json& root() { return root_; }
  WireError& error() { return error_; }

 private:
  template <class T>
  json* add(T&& value) {
    if (open_.empty()) {
      root_ = std::forward<T>(value);
      return &root_;
    }
    auto& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::forward<T>(value));
      return &parent.back();
    }
    *slot_ = std::forward<T>(value);
    return slot_;
  }

  bool open(json value) {
    if (open_.size() == max_depth_) {
      error_ = {WireCode::invalid_json, "nested deeper than " + std::to_string(max_depth_)};
      return false;
    }
    open_.push_back(add(std::move(value)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  std::size_t max_depth_;
  json root_;
  json* slot_ = nullptr;     ///< where the value of the last key goes
  std::vector<json*> open_;  ///< arrays and objects not closed yet; a child is finished before its parent grows again
  std::string field_;        ///< the last key of the outermost object
  WireError error_;
};

}  // namespace

tl::expected<json, WireError> read_json(std::string_view text, std::size_t max_depth) {
  // nlohmann's lexer takes a raw NUL for the end of the text and would accept what stands before it.
  if (const auto nul = text.find('\0'); nul != std::string_view::npos) {
    return tl::unexpected(
        WireError{WireCode::invalid_json, "not valid JSON at byte " + std::to_string(nul + 1) + ": a NUL byte"});
  }
  TreeBuilder builder(max_depth);
  if (!json::sax_parse(text.begin(), text.end(), &builder)) return tl::unexpected(std::move(builder.error()));
  return std::move(builder.root());
}

}  // namespace pagoda::json_lines
