#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "io/model_files/tensor_entry.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// The parsed header of a safetensors file: tensors by name, and the free text of `__metadata__`.
struct SafetensorsHeader {
  TensorEntries tensors;
  std::map<std::string, std::string, std::less<>> metadata;
};

/// Limit on the header, in addition to the format's own.
inline constexpr std::size_t kMaxSafetensorsHeaderBytes = 100'000'000;

/// Parses and checks the header of a whole safetensors file (format: 8 bytes little-endian header length N, N bytes of
/// JSON, then the data). `file` is the complete file, mapped or not; only its header is read. `file_name` goes into
/// messages.
///
/// Errors: bad_file, one line that names file, tensor and reason, for a header that is longer than the file or the
/// limit, or is not a JSON object of the right form; a name that appears twice; an unknown dtype; offsets that lie
/// outside the data, do not match shape and dtype, overlap, or leave bytes of the data part that no tensor covers.
Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file, std::string_view file_name);

}  // namespace pagoda::io
