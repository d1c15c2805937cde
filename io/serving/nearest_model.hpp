#pragma once

#include <span>
#include <string>
#include <string_view>

namespace pagoda::serving {

class ServedModels;

/// Returns the name of a served model or adapter that `name` most likely means; empty if none is near. Case, the owner
/// before a slash and the tag after a colon are ignored. A name is near if at most a quarter of the longer name's
/// letters differ (a swap of two neighbouring letters counts as one), or if one of the two names contains the other,
/// which has at least four letters.
std::string_view nearest_model(std::string_view name, std::span<const std::string> served);

/// Returns " Did you mean `NAME`?" with the nearest served name between the quotation marks `mark`; empty if none is
/// near.
std::string did_you_mean(std::string_view name, std::span<const std::string> served, std::string_view mark);
std::string did_you_mean(std::string_view name, const ServedModels& models, std::string_view mark);

}  // namespace pagoda::serving
