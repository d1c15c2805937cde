#include "io/trace_file.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>

namespace pagoda::io {

Result<std::unique_ptr<std::ostream>> create_trace_file(const std::string& path) {
  auto file = std::make_unique<std::ofstream>(path, std::ios::binary | std::ios::trunc);
  if (!*file) {
    return fail(ErrorCode::bad_config, "trace: cannot write " + path + ": " + std::strerror(errno), "trace");
  }
  return file;
}

}  // namespace pagoda::io
