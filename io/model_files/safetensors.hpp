#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/result.hpp"

namespace pagoda::io {

/// One tensor as the header of a safetensors file describes it.
struct SafetensorsEntry {
  std::string dtype;  ///< as written in the file, for example "BF16"
  std::vector<std::int64_t> shape;
  std::size_t begin = 0;  ///< byte offsets from the start of the file
  std::size_t end = 0;
};

/// The parsed header of a safetensors file: tensors by name, and the free text of `__metadata__`.
struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry, std::less<>> tensors;
  std::map<std::string, std::string, std::less<>> metadata;
};

/// Limits on what is believed of a file, beyond what the format itself demands.
inline constexpr std::size_t kMaxSafetensorsHeaderBytes = 100'000'000;
inline constexpr std::size_t kMaxTensorRank = 16;

/// Parses and checks the header of a whole safetensors file (format: 8 bytes little-endian header length N, N bytes of
/// JSON, then the data). `file` is the complete file, mapped or not; only its header is read. `file_name` goes into
/// messages.
///
/// Refused with bad_file and one line that names file, tensor and reason: a header that is longer than the file or the
/// limit, or is not a JSON object of the right form; a name that appears twice; an unknown dtype; offsets that lie
/// outside the data, do not match shape and dtype, overlap, or leave bytes of the data part that no tensor covers.
Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file, std::string_view file_name);

}  // namespace pagoda::io
