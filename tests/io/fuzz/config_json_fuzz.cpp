// libFuzzer target; the seeds are in corpus/config_json.

#include <cstddef>
#include <cstdint>

#include "tests/io/fuzz/config_json_target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // libFuzzer speaks in unsigned bytes.
  pagoda::io::testing::try_config_json({reinterpret_cast<const char*>(data), size});
  return 0;
}
