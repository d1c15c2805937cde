#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace pagoda::wire {

/// The rule of an API for fields that its parser does not know.
enum class UnknownFields : std::uint8_t { refused, ignored };

/// Names of the fields of one request that do not act on its answer, and the rule by which a field becomes one.
///
/// A request is parsed within a Scope: all FieldReaders that are made on that thread while the Scope lives follow its
/// rule and add to its names, at any depth. FieldReaders without a Scope (JSON lines, files) refuse unknown fields.
class IgnoredFields {
 public:
  static constexpr std::size_t kMaxNames = 256;     ///< further names are left out
  static constexpr std::size_t kMaxNameBytes = 80;  ///< a longer name is cut
  static constexpr std::size_t kMaxHeaderBytes = 1024;

  explicit IgnoredFields(UnknownFields rule) : rule_(rule) {}

  /// Returns a field's name as it is listed: "tools[3].strict" is "tools[].strict", other bytes than printable ASCII
  /// and the comma are "?".
  static std::string listed_name(std::string_view within, std::string_view name);

  /// Adds a name once. Returns false where it was there, or where there are too many.
  bool add(std::string name);
  bool is_full() const { return names_.size() >= kMaxNames; }

  UnknownFields rule() const { return rule_; }
  /// The names in the order in which they were found.
  const std::vector<std::string>& names() const { return names_; }
  /// The names as the value of a header: joined with ", ", and with "..." for names that have no room.
  std::string header() const;

  class Scope;
  /// The names of the innermost Scope of this thread, or null.
  static IgnoredFields* current();

 private:
  UnknownFields rule_;
  std::vector<std::string> names_;
  std::set<std::string, std::less<>> known_;
};

/// Makes `fields` the current ones of this thread. Scopes nest.
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
