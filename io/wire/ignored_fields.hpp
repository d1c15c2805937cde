#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace pagoda::wire {

/// Rule for fields that the parser does not know.
enum class UnknownFields : std::uint8_t { refused, ignored };

/// Names of the fields of one request that have no effect on its answer, and the rule for unknown fields.
///
/// A request is parsed within a Scope: all FieldReaders that are made on that thread during the Scope's lifetime follow
/// its rule and add to its names, at any depth. FieldReaders without a Scope (JSON lines, files) refuse unknown fields.
class IgnoredFields {
 public:
  static constexpr std::size_t kMaxNames = 256;     ///< further names are left out
  static constexpr std::size_t kMaxNameBytes = 80;  ///< a longer name is cut
  static constexpr std::size_t kMaxHeaderBytes = 1024;

  explicit IgnoredFields(UnknownFields rule) : rule_(rule) {}

  /// Returns a field's name in the form in which it is listed: "tools[3].strict" becomes "tools[].strict"; commas and
  /// bytes that are not printable ASCII become "?".
  static std::string listed_name(std::string_view within, std::string_view name);

  /// Adds a name if it is new and there is room. Returns whether it was added.
  bool add(std::string name);
  bool is_full() const { return names_.size() >= kMaxNames; }

  UnknownFields rule() const { return rule_; }
  /// Returns the names in the order in which they were added.
  const std::vector<std::string>& names() const { return names_; }
  /// Returns the names as the value of a header: joined with ", ", and with "..." at the end if some do not fit.
  std::string header() const;

  class Scope;
  /// Returns the object of the innermost Scope of this thread, or null without a Scope.
  static IgnoredFields* current();

 private:
  UnknownFields rule_;
  std::vector<std::string> names_;
  std::set<std::string, std::less<>> known_;
};

/// Makes `fields` the current IgnoredFields of this thread. Scopes can be nested.
class IgnoredFields::Scope {
 public:
  explicit Scope(IgnoredFields& fields);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  IgnoredFields* outer_;
};

}  // namespace pagoda::wire
