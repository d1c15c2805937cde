#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include <stdlib.h>

#include "kernels/result.hpp"

namespace pagoda::io::testing {

/// A folder for the files that a fuzz target makes of its bytes; removed with all in it when destroyed.
class FuzzFolder {
 public:
  FuzzFolder() {
    std::error_code ignored;
    const std::filesystem::path memory = "/dev/shm";
    const auto parent =
        std::filesystem::is_directory(memory, ignored) ? memory : std::filesystem::temp_directory_path();
    std::string name = (parent / "pagoda-fuzz-XXXXXX").string();
    PAGODA_ASSERT(::mkdtemp(name.data()) != nullptr, "a temporary folder can be made");
    path_ = name;
  }
  FuzzFolder(const FuzzFolder&) = delete;
  FuzzFolder& operator=(const FuzzFolder&) = delete;
  ~FuzzFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }

  std::filesystem::path write(std::string_view name, std::string_view content) const {
    const auto file = path_ / name;
    std::ofstream(file, std::ios::binary) << content;
    return file;
  }
  void clear() const {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) std::filesystem::remove(entry, ignored);
  }

 private:
  std::filesystem::path path_;
};

/// An error of a reader of files is one line that says something.
inline void check_error(const Error& error) {
  PAGODA_ASSERT(!error.message.empty(), "an error says what is wrong");
  PAGODA_ASSERT(error.message.find('\n') == std::string::npos, "an error is one line");
}

}  // namespace pagoda::io::testing
