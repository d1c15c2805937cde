#pragma once

#include <span>
#include <string>
#include <string_view>

namespace pagoda::serving {

class ServedModels;

/// Returns the served name that `name` most likely means; empty: none is near. Case, the owner in front of a slash and
/// the tag behind a colon do not count. A name is near if it differs in a quarter of its letters at most, or if one of
/// the two contains the other.
std::string_view nearest_model(std::string_view name, std::span<const std::string> served);

/// " Did you mean `NAME`?" with the nearest served name in the marks of an API; empty if none is near.
std::string did_you_mean(std::string_view name, std::span<const std::string> served, std::string_view mark);
std::string did_you_mean(std::string_view name, const ServedModels& models, std::string_view mark);

}  // namespace pagoda::serving
