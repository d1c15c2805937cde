#include "apps/command.hpp"

#include <algorithm>
#include <cstdio>

namespace pagoda::apps {

void complain(std::string message) {
  while (!message.empty() && message.back() == '\n') message.pop_back();
  std::ranges::replace(message, '\n', ' ');
  std::fprintf(stderr, "pagoda: %s\n", message.c_str());
}

int exit_with(const Error& error) {
  return exit_with(std::span(&error, 1));
}

int exit_with(std::span<const Error> errors) {
  int code = kExitFailure;
  for (const auto& error : errors) {
    complain(error.message);
    const bool asked_wrongly = error.code == ErrorCode::bad_config || error.code == ErrorCode::unsupported;
    if (asked_wrongly) code = kExitBadUsage;
  }
  return code;
}

}  // namespace pagoda::apps
