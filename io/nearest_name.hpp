#pragma once

#include <span>
#include <string_view>

namespace pagoda::io {

/// Returns whether `name` looks like a misspelling of `known`: it differs only in case, in one letter if `known` has
/// four or five letters, or in one or two letters if `known` is longer. An added, missing or different letter counts as
/// one, and so do two neighbouring letters that are swapped. `-` counts as `_`.
bool is_misspelling(std::string_view name, std::string_view known);

/// Returns the nearest of the names in `known` that `name` may be a misspelling of; empty if there is none.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> known);

}  // namespace pagoda::io
