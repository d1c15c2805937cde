#include "io/wire/json_reader.hpp"

#include <string>
#include <unordered_set>
#include <vector>

namespace pagoda::wire {
namespace {

constexpr std::size_t kKeysFoundByLooking = 16;  // in an object with more of them, repeated keys are found by hashing

/// Builds the value from parser events, so that depth and repeated keys are seen before memory is spent on them.
class TreeBuilder : public nlohmann::json_sax<Json> {
 public:
  explicit TreeBuilder(std::size_t max_depth) : max_depth_(max_depth) {}

  bool null() override { return add(nullptr) != nullptr; }
  bool boolean(bool value) override { return add(value) != nullptr; }
  bool number_integer(number_integer_t value) override { return add(value) != nullptr; }
  bool number_unsigned(number_unsigned_t value) override { return add(value) != nullptr; }
  bool number_float(number_float_t value, const string_t&) override { return add(value) != nullptr; }
  bool string(string_t& value) override { return add(std::move(value)) != nullptr; }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    if (open_.size() == 1) field_ = name;
    auto& object = open_.back();
    if (object.has(name)) {
      error_ = {WireCode::invalid_request, "key \"" + name + "\" appears twice in one object", field_};
      return false;
    }
    slot_ = object.add(std::move(name));
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

  Json& root() { return root_; }
  WireError& error() { return error_; }

 private:
  /// An array or object that is not closed yet.
  struct Open {
    Json* value;
    std::unordered_set<std::string> keys;  ///< of an object, once it has many

    bool has(const std::string& name) {
      const auto& object = value->get_ref<const Json::object_t&>();
      if (object.size() < kKeysFoundByLooking) return object.find(name) != object.end();
      if (object.size() == kKeysFoundByLooking && keys.empty()) {
        for (const auto& [key, ignored] : object) keys.insert(key);
      }
      return keys.contains(name);
    }

    /// Where the value of a new key goes.
    Json* add(std::string name) {
      auto& object = value->get_ref<Json::object_t&>();
      if (!keys.empty()) keys.insert(name);
      // Past the map's own insertion, which would look through all keys again.
      auto& entries = static_cast<Json::object_t::Container&>(object);
      return &entries.emplace_back(std::move(name), nullptr).second;
    }
  };

  template <class T>
  Json* add(T&& value) {
    if (open_.empty()) {
      root_ = std::forward<T>(value);
      return &root_;
    }
    auto& parent = *open_.back().value;
    if (parent.is_array()) {
      parent.push_back(std::forward<T>(value));
      return &parent.back();
    }
    *slot_ = std::forward<T>(value);
    return slot_;
  }

  bool open(Json value) {
    if (open_.size() == max_depth_) {
      error_ = {WireCode::invalid_json, "nested deeper than " + std::to_string(max_depth_)};
      return false;
    }
    open_.push_back({add(std::move(value)), {}});
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  std::size_t max_depth_;
  Json root_;
  Json* slot_ = nullptr;    ///< where the value of the last key goes
  std::vector<Open> open_;  ///< a child is finished before its parent grows again
  std::string field_;       ///< the last key of the outermost object
  WireError error_;
};

}  // namespace

tl::expected<Json, WireError> read_json(std::string_view text, std::size_t max_depth) {
  // nlohmann's lexer takes a raw NUL for the end of the text and would accept what stands before it.
  if (const auto nul = text.find('\0'); nul != std::string_view::npos) {
    return tl::unexpected(
        WireError{WireCode::invalid_json, "not valid JSON at byte " + std::to_string(nul + 1) + ": a NUL byte"});
  }
  TreeBuilder builder(max_depth);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) return tl::unexpected(std::move(builder.error()));
  return std::move(builder.root());
}

}  // namespace pagoda::wire
