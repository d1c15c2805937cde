// Products of a matrix unit, which are compared with those of the emulated unit. Included once per unit; PAGODA_SIMD
// names the namespace.

#include <array>
#include <cstdint>

#include "kernels/cpu/matrix_kernels.hpp"

namespace pagoda::kernels::PAGODA_SIMD {
namespace {

using TileBytes = std::array<std::uint8_t, kMatrixTileBytes>;

/// Returns the products of two tiles: of signed bytes, of signed and unsigned bytes, and of bfloat16.
inline std::array<TileBytes, 3> products_of(const TileBytes& a, const TileBytes& b) {
  TileShapes shapes;
  for (int tile = 0; tile < 8; ++tile) shapes.set(tile, kMatrixTileRows, kMatrixLine);
  configure(shapes);
  zero_tile<0>();
  zero_tile<1>();
  zero_tile<2>();
  load_tile<4>(a.data(), kMatrixLine);
  load_tile<6>(b.data(), kMatrixLine);
  add_bytes<0, 4, 6, true>();
  add_bytes<1, 4, 6, false>();
  add_bf16<2, 4, 6>();
  std::array<TileBytes, 3> products{};
  store_tile<0>(products[0].data(), kMatrixLine);
  store_tile<1>(products[1].data(), kMatrixLine);
  store_tile<2>(products[2].data(), kMatrixLine);
  release_tiles();
  return products;
}

}  // namespace
}  // namespace pagoda::kernels::PAGODA_SIMD
