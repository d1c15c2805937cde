// libFuzzer entry: any bytes at all are either refused or give a header whose tensors lie within the file.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "io/model_files/safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto header = pagoda::io::parse_safetensors(std::as_bytes(std::span(data, size)), "fuzz");
  if (!header) return 0;
  for (const auto& [name, entry] : header->tensors) {
    if (entry.begin > entry.end || entry.end > size) std::abort();
  }
  return 0;
}
