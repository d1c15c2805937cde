#include "kernels/reference/element.hpp"
#include "kernels/reference/reference_ops.hpp"

namespace pagoda::kernels::reference {

// from, to [count]
void convert(const ConvertParams& p) {
  for (std::int64_t i = 0; i < p.count; ++i) store(p.to, p.to_dtype, i, load(p.from, p.from_dtype, i));
}

}  // namespace pagoda::kernels::reference
