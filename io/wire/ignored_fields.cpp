#include "io/wire/ignored_fields.hpp"

#include <utility>

namespace pagoda::wire {
namespace {

thread_local IgnoredFields* current_fields = nullptr;

}  // namespace

std::string IgnoredFields::listed_name(std::string_view within, std::string_view name) {
  std::string listed;
  bool is_index = false;
  for (const char c : within) {
    if (c == ']') is_index = false;
    if (!is_index) listed += c;
    if (c == '[') is_index = true;
  }
  for (const char c : name.substr(0, kMaxNameBytes)) {
    const bool is_plain = c > ' ' && c <= '~' && c != ',';
    listed += is_plain ? c : '?';
  }
  if (listed.size() > kMaxNameBytes) listed.resize(kMaxNameBytes);
  return listed;
}

bool IgnoredFields::add(std::string name) {
  if (is_full() || !known_.insert(name).second) return false;
  names_.push_back(std::move(name));
  return true;
}

std::string IgnoredFields::header() const {
  constexpr std::string_view kBetween = ", ";
  constexpr std::string_view kMore = "...";
  std::string header;
  for (const auto& name : names_) {
    if (header.size() + name.size() + 2 * kBetween.size() + kMore.size() > kMaxHeaderBytes) {
      return header.append(kBetween).append(kMore);
    }
    if (!header.empty()) header += kBetween;
    header += name;
  }
  return header;
}

IgnoredFields* IgnoredFields::current() {
  return current_fields;
}

IgnoredFields::Scope::Scope(IgnoredFields& fields) : outer_(std::exchange(current_fields, &fields)) {}

IgnoredFields::Scope::~Scope() {
  current_fields = outer_;
}

}  // namespace pagoda::wire
