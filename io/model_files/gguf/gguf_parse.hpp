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

/// What one GGUF file says; strings and data of tensors point into its bytes.
struct GgufContents {
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::vector<GgufEntry> entries;  ///< the same as it lies there
  std::map<std::string, GgufTensor, std::less<>> tensors;
};

/// Limits on what is believed of a file, beyond what the format itself demands.
inline constexpr std::size_t kMaxGgufHeaderBytes = 100'000'000;  ///< all before the data
inline constexpr std::uint64_t kMaxGgufKeys = 65'536;
inline constexpr std::uint64_t kMaxGgufTensors = 65'536;
inline constexpr std::size_t kMaxGgufKeyBytes = 65'535;      ///< the format's own limit
inline constexpr std::size_t kMaxGgufTensorNameBytes = 256;  ///< the format says 64
inline constexpr std::uint32_t kMaxGgufTensorRank = 4;       ///< the format's own limit
inline constexpr std::int64_t kMinGgufAlignment = 8;
inline constexpr std::int64_t kMaxGgufAlignment = 1 << 20;
inline constexpr std::int64_t kDefaultGgufAlignment = 32;  ///< where general.alignment is not there

/// Parses and checks the header of a whole GGUF file, or of a part of a split one: magic, version, counts, metadata,
/// and of each tensor name, sizes, type and place; then, aligned, the data. `file` is the complete file, mapped or not;
/// only its header is read, and no memory is taken for what the file has no bytes for. `file_name` goes into messages.
/// Errors: bad_file and unsupported as GgufFile::open describes them.
Result<GgufContents> parse_gguf(std::span<const std::byte> file, std::string_view file_name);

}  // namespace pagoda::io
