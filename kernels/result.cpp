#include "kernels/result.hpp"

#include <cstdio>
#include <cstdlib>

namespace pagoda::detail {

void assertion_failed(const char* condition, const char* file, int line, std::string_view message) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s (%.*s)\n", file, line, condition, static_cast<int>(message.size()),
               message.data());
  std::abort();
}

}  // namespace pagoda::detail
