#include "io/jinja/filters.hpp"

#include <unordered_map>

namespace pagoda::jinja {

Filter find_filter(std::string_view name) {
  static const auto kFilters = [] {
    std::unordered_map<std::string_view, Filter> all;
    for (const auto* group :
         {&text_filters(), &number_filters(), &item_filters(), &selecting_filters(), &ordering_filters()}) {
      for (const NamedFilter& entry : *group) all.emplace(entry.name, entry.filter);
    }
    return all;
  }();
  const auto found = kFilters.find(name);
  return found == kFilters.end() ? nullptr : found->second;
}

}  // namespace pagoda::jinja
