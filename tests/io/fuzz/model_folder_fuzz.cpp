// libFuzzer target; the seeds are in corpus/model_folder.

#include <cstddef>
#include <cstdint>

#include "tests/io/fuzz/model_folder_target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // libFuzzer speaks in unsigned bytes.
  pagoda::io::testing::try_model_folder({reinterpret_cast<const char*>(data), size});
  return 0;
}
