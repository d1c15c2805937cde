#pragma once

#include <span>
#include <string_view>

namespace pagoda::io {

/// Returns whether `name` reads as a misspelling of `known`: it differs in case only, in one letter from a name of four
/// or five letters, or in one or two from a longer name. A letter more, a letter less, another letter and two
/// neighbours in each other's place each count as one; `-` is read as `_`.
bool is_misspelling(std::string_view name, std::string_view known);

/// Returns the name of `known` of which `name` is the nearest misspelling; empty: there is none.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> known);

}  // namespace pagoda::io
