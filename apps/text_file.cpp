#include "apps/text_file.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>

namespace pagoda::apps {

Result<std::string> read_text_file(const std::string& path, const std::string& key) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  std::string text;
  std::array<char, 1 << 16> part;
  std::size_t size = 0;
  while (file != nullptr && (size = std::fread(part.data(), 1, part.size(), file.get())) > 0) {
    text.append(part.data(), size);
  }
  if (file == nullptr || std::ferror(file.get()) != 0) {
    const std::string reason = std::generic_category().message(errno);
    return fail(ErrorCode::io_failed, "cannot read the text " + path + ": " + reason, key);
  }
  if (text.empty()) return fail(ErrorCode::bad_config, path + " is empty", key);
  return text;
}

}  // namespace pagoda::apps
