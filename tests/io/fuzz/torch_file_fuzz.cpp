// libFuzzer entry: any bytes at all are either refused or give tensors that lie within the file; taken as the pickle in
// such a file, they are either refused or read.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "io/model_files/torch/torch_file.hpp"
#include "io/model_files/torch/torch_pickle.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  static_cast<void>(pagoda::io::read_torch_pickle(bytes, "fuzz"));
  const auto entries = pagoda::io::parse_torch_file(bytes, "fuzz");
  if (!entries) return 0;
  for (const auto& [name, entry] : *entries) {
    if (entry.begin > entry.end || entry.end > size) std::abort();
  }
  return 0;
}
