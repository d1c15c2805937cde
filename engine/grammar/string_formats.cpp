#include "engine/grammar/string_formats.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace pagoda::grammar {
namespace {

// Days as months have them but for 29 February, which not every year has.
#define PAGODA_DATE \
  "[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
#define PAGODA_TIME "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define PAGODA_LABEL "[A-Za-z0-9]([A-Za-z0-9]|-[A-Za-z0-9]){0,15}"
#define PAGODA_BYTE "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define PAGODA_HEX4 "[0-9a-fA-F]{1,4}"

constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kFormats{{
    {"date", PAGODA_DATE},
    {"time", PAGODA_TIME},
    {"date-time", PAGODA_DATE "T" PAGODA_TIME},
    {"duration",
     "P([0-9]{1,4}W|[0-9]{1,4}Y([0-9]{1,2}M([0-9]{1,2}D)?)?|[0-9]{1,2}M([0-9]{1,2}D)?|[0-9]{1,4}D|([0-9]{1,4}D)?T([0-9]"
     "{1,2}H([0-9]{1,2}M([0-9]{1,2}S)?)?|[0-9]{1,2}M([0-9]{1,2}S)?|[0-9]{1,2}S))"},
    {"email", "[A-Za-z0-9_%+-]{1,20}(\\.[A-Za-z0-9_%+-]{1,20}){0,2}@" PAGODA_LABEL "(\\." PAGODA_LABEL "){1,3}"},
    {"hostname", PAGODA_LABEL "(\\." PAGODA_LABEL "){0,4}"},
    {"ipv4", "(" PAGODA_BYTE "\\.){3}" PAGODA_BYTE},
    {"ipv6", "((" PAGODA_HEX4 ":){7}" PAGODA_HEX4 "|::(" PAGODA_HEX4 ":){0,5}" PAGODA_HEX4 "|(" PAGODA_HEX4
             ":){1,6}:" PAGODA_HEX4 "|::)"},
    {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
    {"uri", "[A-Za-z][A-Za-z0-9+.-]{0,15}://" PAGODA_LABEL "(\\." PAGODA_LABEL "){0,4}(:[0-9]{1,4})?(/"
            "([A-Za-z0-9_.~-]|%[0-9A-Fa-f]{2})*)*(\\?([A-Za-z0-9_.~=&-]|%[0-9A-Fa-f]{2})*)?(#[A-Za-z0-9_."
            "~-]*)?"},
}};

}  // namespace

std::optional<std::string_view> string_format(std::string_view name) {
  const auto found = std::ranges::find(kFormats, name, &std::pair<std::string_view, std::string_view>::first);
  if (found == kFormats.end()) return std::nullopt;
  return found->second;
}

}  // namespace pagoda::grammar
