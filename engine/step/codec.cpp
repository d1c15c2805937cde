#include "engine/step/codec.hpp"

namespace pagoda {

void Encoder::append(const unsigned char* begin, const unsigned char* end) {
  out_.insert(out_.end(), reinterpret_cast<const std::byte*>(begin), reinterpret_cast<const std::byte*>(end));
}

}  // namespace pagoda
