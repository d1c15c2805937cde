#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string_view>

#include "kernels/result.hpp"

namespace pagoda::io {

/// Range of the bytes of one entry of a zip file, from the start of the file.
struct ZipEntry {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// Entries of a zip file by name; the names point into the file.
using ZipDirectory = std::map<std::string_view, ZipEntry, std::less<>>;

inline constexpr std::size_t kMaxZipEntries = 1'000'000;

/// Reads the directory of a zip file (APPNOTE 6.3, with zip64) whose entries are all stored uncompressed, so that they
/// can be used in place. `file` is the complete file, mapped or not; `file_name` goes into messages. Checksums are not
/// checked, because that would read every byte.
///
/// Errors, one line that names file, entry and reason: unsupported (an entry that is compressed or encrypted), bad_file
/// (no zip file, or a truncated one; more entries than the limit; a name that appears twice; a local header that
/// contradicts the directory; entries that overlap or reach into the directory).
Result<ZipDirectory> parse_zip(std::span<const std::byte> file, std::string_view file_name);

}  // namespace pagoda::io
