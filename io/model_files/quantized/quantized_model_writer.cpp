#include "io/model_files/quantized/quantized_model_writer.hpp"

namespace pagoda::io {

int most_common_bits(std::span<const WrittenModule> modules) {
  std::int64_t more_of_8 = 0;
  for (const WrittenModule& module : modules) {
    more_of_8 += (module.bits == 8 ? 1 : -1) * module.rows * module.columns;
  }
  return more_of_8 > 0 ? 8 : 4;
}

}  // namespace pagoda::io
