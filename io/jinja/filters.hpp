#pragma once

#include <string_view>

#include "io/jinja/ast.hpp"

namespace pagoda::jinja {

/// Returns null when there is no filter of this name.
Filter find_filter(std::string_view name);

struct NamedFilter {
  std::string_view name;
  Filter filter;
};

// The filters, by the kind of their input.
const std::vector<NamedFilter>& text_filters();
const std::vector<NamedFilter>& number_filters();
const std::vector<NamedFilter>& item_filters();
const std::vector<NamedFilter>& selecting_filters();
const std::vector<NamedFilter>& ordering_filters();

}  // namespace pagoda::jinja
