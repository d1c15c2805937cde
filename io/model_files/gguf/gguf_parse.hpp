#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/model_files/gguf/gguf_file.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// The contents of one GGUF file; strings and data of tensors point into its bytes.
struct GgufContents {
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::vector<GgufEntry> entries;  ///< the metadata as it is in the file
  std::map<std::string, GgufTensor, std::less<>> tensors;
};

/// Limits on counts and sizes in a file, in addition to the format's own.
inline constexpr std::size_t kMaxGgufHeaderBytes = 100'000'000;  ///< size of all that precedes the data
inline constexpr std::uint64_t kMaxGgufKeys = 65'536;
inline constexpr std::uint64_t kMaxGgufTensors = 65'536;
inline constexpr std::size_t kMaxGgufKeyBytes = 65'535;      ///< the format's own limit
inline constexpr std::size_t kMaxGgufTensorNameBytes = 256;  ///< the format's own limit is 64
inline constexpr std::uint32_t kMaxGgufTensorRank = 4;       ///< the format's own limit
inline constexpr std::int64_t kMinGgufAlignment = 8;
inline constexpr std::int64_t kMaxGgufAlignment = 1 << 20;
inline constexpr std::int64_t kDefaultGgufAlignment = 32;  ///< used where general.alignment is missing

/// Parses and checks the header of a whole GGUF file or of one part of a split file: magic, version, counts, metadata,
/// and for each tensor name, sizes, type and place of its data. `file` is the complete file, mapped or not; only its
/// header is read, and memory is allocated only for what the file really contains. `file_name` goes into messages.
/// Errors: bad_file and unsupported as GgufFile::open describes them.
Result<GgufContents> parse_gguf(std::span<const std::byte> file, std::string_view file_name);

}  // namespace pagoda::io
