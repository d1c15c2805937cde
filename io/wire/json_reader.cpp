#include "io/wire/json_reader.hpp"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "io/wire/exact_json.hpp"

namespace pagoda::wire {
namespace {

constexpr std::size_t kKeysFoundByLooking = 16;  // in an object with more keys, repeated keys are found by hashing

/// Builds the value from parser events, so that depth and repeated keys are checked before memory is allocated for
/// them.
class TreeBuilder : public nlohmann::json_sax<Json> {
 public:
  enum class Keys : std::uint8_t { unique, last_counts };
  TreeBuilder(std::size_t max_depth, Integers integers, Keys keys)
      : max_depth_(max_depth), integers_(integers), keys_(keys) {}

  bool null() override { return add(nullptr) != nullptr; }
  bool boolean(bool value) override { return add(value) != nullptr; }
  bool number_integer(number_integer_t value) override { return add(value) != nullptr; }
  bool number_unsigned(number_unsigned_t value) override { return add(value) != nullptr; }
  bool number_float(number_float_t value, const string_t& text) override {
    const bool is_integer = integers_ == Integers::exact && text.find_first_of(".eE") == std::string::npos;
    return add(is_integer ? big_integer(text) : Json(value)) != nullptr;
  }
  bool string(string_t& value) override { return add(std::move(value)) != nullptr; }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    if (open_.size() == 1) field_ = name;
    auto& object = open_.back();
    awaits_value_ = true;
    if (Json* const known = object.find(name)) {
      if (keys_ == Keys::last_counts) {
        slot_ = known;
        return true;
      }
      error_ = {WireCode::invalid_request, "key \"" + name + "\" appears twice in one object", field_};
      return false;
    }
    slot_ = object.add(std::move(name));
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& cause) override {
    constexpr int kNumberOutOfRange = 406;  // error number in nlohmann_json
    error_position_ = position;
    const bool has_surrogate = std::string_view(cause.what()).find("surrogate") != std::string_view::npos;
    if (cause.id == kNumberOutOfRange) {
      error_ = {WireCode::invalid_request, "a number is too large", field_};
    } else if (has_surrogate) {
      error_ = {WireCode::invalid_json, "not valid JSON at byte " + std::to_string(position) +
                                            ": a lone surrogate (\\uD800 to \\uDFFF) is not a character"};
    } else {
      error_ = {WireCode::invalid_json, "not valid JSON at byte " + std::to_string(position)};
    }
    return false;
  }

  Json& root() { return root_; }
  WireError& error() { return error_; }
  std::size_t error_position() const { return error_position_; }

  /// Removes the last key if the text ended before its value.
  void drop_key_without_value() {
    if (!awaits_value_ || open_.empty()) return;
    auto& entries = static_cast<Json::object_t::Container&>(open_.back().value->get_ref<Json::object_t&>());
    if (&entries.back().second == slot_) entries.pop_back();
  }

 private:
  /// An array or object that is not closed yet.
  struct Open {
    Json* value;
    std::unordered_map<std::string, std::size_t> places;  ///< of the keys of an object with many keys

    /// Returns the value of a key; null if the object does not have it.
    Json* find(const std::string& name) {
      auto& object = value->get_ref<Json::object_t&>();
      if (object.size() < kKeysFoundByLooking) {
        const auto found = object.find(name);
        return found == object.end() ? nullptr : &found->second;
      }
      auto& entries = static_cast<Json::object_t::Container&>(object);
      if (places.empty()) {
        for (std::size_t i = 0; i < entries.size(); ++i) places.emplace(entries[i].first, i);
      }
      const auto found = places.find(name);
      return found == places.end() ? nullptr : &entries[found->second].second;
    }

    /// Adds a key and returns the place of its value.
    Json* add(std::string name) {
      auto& object = value->get_ref<Json::object_t&>();
      if (!places.empty()) places.emplace(name, object.size());
      // Bypasses the map's own insertion, which would search all keys again.
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
    awaits_value_ = false;
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
  Integers integers_;
  Keys keys_;
  Json root_;
  Json* slot_ = nullptr;       ///< place of the last key's value
  std::vector<Open> open_;     ///< open arrays and objects; a child is complete before its parent grows again
  std::string field_;          ///< the last key of the outermost object
  bool awaits_value_ = false;  ///< whether a key was read and its value was not
  std::size_t error_position_ = 0;
  WireError error_;
};

/// Returns whether the escape "\\uXXXX" at `at` is the first half of a surrogate pair.
bool is_high_surrogate(std::string_view text, std::size_t at) {
  return at + 3 < text.size() && text[at + 1] == 'u' && (text[at + 2] == 'd' || text[at + 2] == 'D') &&
         std::string_view("89abAB").find(text[at + 3]) != std::string_view::npos;
}

/// Closes the string in which the text ends, after the last complete character.
std::string with_closed_string(std::string_view text) {
  bool is_inside = false;
  auto end = text.size();
  auto half = std::string_view::npos;  // position of a first half of a surrogate pair without its second half
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!is_inside || text[i] != '\\') {
      if (text[i] == '"') is_inside = !is_inside;
      half = std::string_view::npos;
      continue;
    }
    const std::size_t length = i + 1 < text.size() && text[i + 1] == 'u' ? 6 : 2;
    if (i + length > text.size()) {
      end = i;
      break;
    }
    half = is_high_surrogate(text, i) ? i : std::string_view::npos;
    i += length - 1;
  }
  if (!is_inside) return std::string(text);
  return std::string(text.substr(0, std::min(end, half))) + '"';
}

}  // namespace

tl::expected<Json, WireError> read_json(std::string_view text, std::size_t max_depth, Integers integers) {
  // nlohmann's lexer treats a raw NUL as the end of the text and would accept the part before it.
  if (const auto nul = text.find('\0'); nul != std::string_view::npos) {
    return tl::unexpected(
        WireError{WireCode::invalid_json, "not valid JSON at byte " + std::to_string(nul + 1) + ": a NUL byte"});
  }
  TreeBuilder builder(max_depth, integers, TreeBuilder::Keys::unique);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) return tl::unexpected(std::move(builder.error()));
  return std::move(builder.root());
}

Json read_cut_json(std::string_view text, std::size_t max_depth) {
  if (text.find('\0') != std::string_view::npos) return nullptr;
  const auto closed = with_closed_string(text);
  TreeBuilder builder(max_depth, Integers::exact, TreeBuilder::Keys::last_counts);
  if (Json::sax_parse(closed.begin(), closed.end(), &builder)) return std::move(builder.root());
  if (builder.error_position() <= closed.size()) return nullptr;
  builder.drop_key_without_value();
  return std::move(builder.root());
}

}  // namespace pagoda::wire
