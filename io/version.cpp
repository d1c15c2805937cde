#include "io/version.hpp"

namespace pagoda {

std::string_view version() {
  return PAGODA_VERSION;
}

}  // namespace pagoda
