#include "engine/grammar/string_formats.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace pagoda::grammar {
namespace {

// The days that each month has; 29 February in years that are multiples of 4, and in full centuries that are multiples
// of 400.
#define PAGODA_DATE                                                                                               \
  "([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-" \
  "8]))|([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)"
#define PAGODA_TIME "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define PAGODA_LABEL "[A-Za-z0-9]([A-Za-z0-9]|-[A-Za-z0-9]){0,15}"
#define PAGODA_BYTE "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define PAGODA_HEX4 "[0-9a-fA-F]{1,4}"

#define PAGODA_PATH "(/([A-Za-z0-9_.~-]|%[0-9A-Fa-f]{2})*)*"
#define PAGODA_QUERY "(\\?([A-Za-z0-9_.~=&-]|%[0-9A-Fa-f]{2})*)?(#[A-Za-z0-9_.~-]*)?"
#define PAGODA_HOST PAGODA_LABEL "(\\." PAGODA_LABEL "){0,4}"
#define PAGODA_EMAIL "[A-Za-z0-9_%+-]{1,20}(\\.[A-Za-z0-9_%+-]{1,20}){0,2}@" PAGODA_LABEL "(\\." PAGODA_LABEL "){1,3}"
#define PAGODA_URI "[A-Za-z][A-Za-z0-9+.-]{0,15}://" PAGODA_HOST "(:[0-9]{1,4})?" PAGODA_PATH PAGODA_QUERY
#define PAGODA_POINTER "(/([^~/]|~[01])*)*"

// The international formats allow only texts that also have the older format.
constexpr std::array<std::pair<std::string_view, std::string_view>, 18> kFormats{{
    {"date", PAGODA_DATE},
    {"time", PAGODA_TIME},
    {"date-time", PAGODA_DATE "T" PAGODA_TIME},
    {"duration",
     "P([0-9]{1,4}W|[0-9]{1,4}Y([0-9]{1,2}M([0-9]{1,2}D)?)?|[0-9]{1,2}M([0-9]{1,2}D)?|[0-9]{1,4}D|([0-9]{1,4}D)?T([0-9]"
     "{1,2}H([0-9]{1,2}M([0-9]{1,2}S)?)?|[0-9]{1,2}M([0-9]{1,2}S)?|[0-9]{1,2}S))"},
    {"email", PAGODA_EMAIL},
    {"idn-email", PAGODA_EMAIL},
    {"hostname", PAGODA_HOST},
    {"idn-hostname", PAGODA_HOST},
    {"ipv4", "(" PAGODA_BYTE "\\.){3}" PAGODA_BYTE},
    {"ipv6", "((" PAGODA_HEX4 ":){7}" PAGODA_HEX4 "|::(" PAGODA_HEX4 ":){0,5}" PAGODA_HEX4 "|(" PAGODA_HEX4
             ":){1,6}:" PAGODA_HEX4 "|::)"},
    {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
    {"uri", PAGODA_URI},
    {"iri", PAGODA_URI},
    {"uri-template", PAGODA_URI},
    {"uri-reference", "(" PAGODA_URI "|(/[A-Za-z0-9_.~-]+)+/?" PAGODA_QUERY ")"},
    {"iri-reference", "(" PAGODA_URI "|(/[A-Za-z0-9_.~-]+)+/?" PAGODA_QUERY ")"},
    {"json-pointer", PAGODA_POINTER},
    {"relative-json-pointer", "(0|[1-9][0-9]{0,8})(#|" PAGODA_POINTER ")"},
}};

}  // namespace

std::optional<std::string_view> string_format(std::string_view name) {
  const auto found = std::ranges::find(kFormats, name, &std::pair<std::string_view, std::string_view>::first);
  if (found == kFormats.end()) return std::nullopt;
  return found->second;
}

}  // namespace pagoda::grammar
