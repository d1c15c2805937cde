#pragma once

/// Matrix instructions: the lanes of a warp share their registers, and the last lane to arrive computes for all.

#include <cstdint>
#include <cstring>

#include "cuda_emulator/threads.hpp"

namespace cuda_emulator {

template <class Accumulator>
struct MmaSlot {
  std::uint32_t a[4];
  std::uint32_t b[2];
  Accumulator c[4];
};

/// Value: the element type of A and B, which are packed into registers. m16n8k16 and m16n8k32 have one layout in terms
/// of registers.
template <class Value, class Accumulator>
void compute_mma(WarpLanes& lanes) {
  if (lanes.mask != 0xFFFFFFFFU) __trap();
  constexpr int kPerRegister = 4 / static_cast<int>(sizeof(Value));
  constexpr int kDepth = 8 * kPerRegister;
  Accumulator a[16][kDepth];
  Accumulator b[kDepth][8];
  Value values[kPerRegister];
  for (int lane = 0; lane < 32; ++lane) {
    const auto& slot = *static_cast<const MmaSlot<Accumulator>*>(lanes.slot[lane]);
    const int group = lane / 4;
    const int place = lane % 4;
    for (int r = 0; r < 4; ++r) {
      std::memcpy(static_cast<void*>(values), &slot.a[r], 4);
      const int row = group + (r % 2) * 8;
      const int column = place * kPerRegister + (r / 2) * (kDepth / 2);
      for (int i = 0; i < kPerRegister; ++i) a[row][column + i] = static_cast<Accumulator>(values[i]);
    }
    for (int r = 0; r < 2; ++r) {
      std::memcpy(static_cast<void*>(values), &slot.b[r], 4);
      const int row = place * kPerRegister + r * (kDepth / 2);
      for (int i = 0; i < kPerRegister; ++i) b[row + i][group] = static_cast<Accumulator>(values[i]);
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    auto& slot = *static_cast<MmaSlot<Accumulator>*>(lanes.slot[lane]);
    for (int r = 0; r < 4; ++r) {
      const int row = lane / 4 + (r / 2) * 8;
      const int column = lane % 4 * 2 + r % 2;
      Accumulator sum = slot.c[r];
      for (int k = 0; k < kDepth; ++k) sum += a[row][k] * b[k][column];
      slot.c[r] = sum;
    }
  }
}

template <class Value, class Accumulator>
void mma(Accumulator (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], const Accumulator (&c)[4]) {
  MmaSlot<Accumulator> slot;
  std::memcpy(slot.a, a, sizeof(slot.a));
  std::memcpy(slot.b, b, sizeof(slot.b));
  std::memcpy(slot.c, c, sizeof(slot.c));
  warp_collective(0xFFFFFFFFU, compute_mma<Value, Accumulator>, &slot);
  std::memcpy(d, slot.c, sizeof(slot.c));
}

template <class T>
void mma_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], const float (&c)[4]) {
  mma<T>(d, a, b, c);
}

inline void mma_m16n8k32_s8(std::int32_t (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                            const std::int32_t (&c)[4]) {
  mma<std::int8_t>(d, a, b, c);
}

struct LoadMatricesSlot {
  const void* row;
  std::uint32_t registers[4];
};

template <bool transposed, int matrices>
void compute_load_matrices(WarpLanes& lanes) {
  if (lanes.mask != 0xFFFFFFFFU) __trap();
  for (int m = 0; m < matrices; ++m) {
    std::uint16_t matrix[8][8];
    for (int row = 0; row < 8; ++row) {
      const void* from = static_cast<const LoadMatricesSlot*>(lanes.slot[8 * m + row])->row;
      if (reinterpret_cast<std::uintptr_t>(from) % 16 != 0) __trap();
      std::memcpy(matrix[row], from, 16);
    }
    for (int lane = 0; lane < 32; ++lane) {
      const int group = lane / 4;
      const int place = lane % 4;
      std::uint16_t pair[2];
      for (int i = 0; i < 2; ++i) pair[i] = transposed ? matrix[2 * place + i][group] : matrix[group][2 * place + i];
      std::memcpy(&static_cast<LoadMatricesSlot*>(lanes.slot[lane])->registers[m], pair, 4);
    }
  }
}

template <bool transposed, int matrices>
void load_matrices(std::uint32_t (&r)[matrices], const void* row) {
  LoadMatricesSlot slot{row, {}};
  warp_collective(0xFFFFFFFFU, compute_load_matrices<transposed, matrices>, &slot);
  std::memcpy(r, slot.registers, sizeof(r));
}

}  // namespace cuda_emulator
