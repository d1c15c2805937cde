// How quantised weights are stored (see QuantizedMatrix), and how they are unpacked. Included once per instruction set,
// after quantized_scales.inl.hpp; PAGODA_SIMD names the namespace.

#include <algorithm>
#include <array>
#include <cstdint>

#include "kernels/cpu/quantized_kernels.hpp"
#include "kernels/quantized.hpp"

namespace pagoda::kernels::PAGODA_SIMD {
namespace {

constexpr std::int64_t kStepBytes = 4 * kQuantizedPanel;  ///< bytes of a panel that a step of four columns takes
constexpr std::int64_t kVectorBytes = 4 * kLanes;

// Storage kinds of weights. Each kind has
//
//   Dots                      the Dots of its values
//   kSteps                    steps of four columns in a block, the columns that are stored together
//   kBytes                    bytes of a panel that a block takes
//   weights(block, step, v)   returns four columns of the rows of vector v of the panel at `block`
//   values(block, step, v)    returns the same values as bytes (only kinds that are stored in panels)
//
// Affine has packed(block, step, v) instead: its values need the multipliers and offsets of an AffineBlock.

inline const std::uint8_t* word_at(const std::uint8_t* block, int word, int v) {
  return block + word * kStepBytes + v * kVectorBytes;
}

/// Returns the 4-bit values of a step from words that hold two steps each, in the halves of bytes.
inline Bytes half_at(const std::uint8_t* block, int step, int v) {
  const Bytes packed = load_bytes(word_at(block, step / 2, v));
  return step % 2 == 0 ? low_halves(packed) : high_halves(packed);
}

/// Returns the 2-bit values of a step from a word that holds four steps.
inline Bytes quarter_at(const std::uint8_t* block, int step, int v) {
  return bits_of<3>(load_bytes(word_at(block, 0, v)), -2 * step);
}

template <int bits>
struct InPanel {  // 5 and 6 bits: words of halves, followed by a word of the higher bits
  using Dots = PAGODA_SIMD::Dots<bits>;
  static constexpr int kHighBits = bits - 4;
  static constexpr int kSteps = 8 / kHighBits;
  static constexpr std::int64_t kBytes = kSteps * kStepBytes * bits / 8;

  static Bytes values(const std::uint8_t* block, int step, int v) {
    constexpr int kMask = ((1 << kHighBits) - 1) << 4;
    const Bytes high = load_bytes(word_at(block, kSteps / 2, v));
    return half_at(block, step, v) | bits_of<kMask>(high, 4 - step * kHighBits);
  }
  static auto weights(const std::uint8_t* block, int step, int v) { return Dots::weights_of(values(block, step, v)); }
};

template <>
struct InPanel<4> {
  using Dots = PAGODA_SIMD::Dots<4>;
  static constexpr int kSteps = 4;
  static constexpr std::int64_t kBytes = 2 * kStepBytes;

  static Bytes values(const std::uint8_t* block, int step, int v) { return half_at(block, step, v); }
  static auto weights(const std::uint8_t* block, int step, int v) { return Dots::weights_of(values(block, step, v)); }
};

template <>
struct InPanel<3> {
  using Dots = PAGODA_SIMD::Dots<3>;
  static constexpr int kSteps = 4;
  static constexpr std::int64_t kBytes = kStepBytes * 3 / 2;

  static Bytes values(const std::uint8_t* block, int step, int v) {
    const Bytes high = load_spread_words(block + kStepBytes + v * kVectorBytes / 2);
    return quarter_at(block, step, v) | bits_of<4>(high, 2 - step);
  }
  static auto weights(const std::uint8_t* block, int step, int v) { return Dots::weights_of(values(block, step, v)); }
};

template <>
struct InPanel<2> {
  using Dots = PAGODA_SIMD::Dots<2>;
  static constexpr int kSteps = 4;
  static constexpr std::int64_t kBytes = kStepBytes;

  static Bytes values(const std::uint8_t* block, int step, int v) { return quarter_at(block, step, v); }
  static auto weights(const std::uint8_t* block, int step, int v) { return Dots::weights_of(values(block, step, v)); }
};

template <class D>
struct BytesInPanel {
  using Dots = D;
  static constexpr int kSteps = 4;
  static constexpr std::int64_t kBytes = 4 * kStepBytes;

  static Bytes values(const std::uint8_t* block, int step, int v) { return load_bytes(word_at(block, step, v)); }
  static auto weights(const std::uint8_t* block, int step, int v) { return Dots::weights_of(values(block, step, v)); }
};

template <>
struct InPanel<8> : BytesInPanel<PAGODA_SIMD::Dots<8>> {};

/// Weights whose 4-bit halves are indices into a codebook.
struct InCodebook {
  using Dots = PAGODA_SIMD::Dots<8>;
  static constexpr int kSteps = 4;
  static constexpr std::int64_t kBytes = 2 * kStepBytes;

  explicit InCodebook(Codebook codebook) {
    std::array<std::uint8_t, 16> unsigned_values{};
    std::ranges::transform(values_of(codebook), unsigned_values.begin(),
                           [](std::int8_t value) { return static_cast<std::uint8_t>(value + 128); });
    table = repeated(unsigned_values.data());
  }

  Bytes values(const std::uint8_t* block, int step, int v) const { return look_up(table, half_at(block, step, v)); }
  auto weights(const std::uint8_t* block, int step, int v) const { return Dots::weights_of(values(block, step, v)); }

  Bytes table;
};

template <int bits>
struct InScratch {  // output of unpack
  using Dots = PAGODA_SIMD::Dots<bits>;
  static constexpr int kSteps = 4;
  static constexpr std::int64_t kBytes = 4 * kStepBytes * Dots::kUnpackedBytes;

  static auto weights(const std::uint8_t* block, int step, int v) {
    return Dots::unpacked_at(block + (step * kStepBytes + v * kVectorBytes) * Dots::kUnpackedBytes);
  }
};

/// Packed values with multipliers and offsets, of kAffineColumns columns in a block.
template <int bits>
struct Affine {
  using Packed = InPanel<bits>;
  using Dots = BoundedDots;
  static constexpr int kSteps = kAffineColumns / 4;
  static constexpr std::int64_t kBytes = kSteps / Packed::kSteps * Packed::kBytes;
  static constexpr std::int64_t kFactors = 2 * kQuantizedPanel;  ///< multipliers and offsets of a block of a panel

  static Bytes packed(const std::uint8_t* block, int step, int v) {
    return Packed::values(block + step / Packed::kSteps * Packed::kBytes, step % Packed::kSteps, v);
  }
};

/// The multipliers and offsets of a block, of each vector.
template <class Kind, int vectors>
struct AffineBlock {
  using Dots = typename Kind::Dots;

  /// `factors` points to those of the first panel.
  AffineBlock(const std::int8_t* factors, std::int64_t stride) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      const std::int8_t* const at = factors + v / kVectorsPerPanel * stride + v % kVectorsPerPanel * kLanes;
      multipliers[v] = factors_of(load_spread_bytes(at));
      // The products take unsigned bytes. They are 128 more than the signed offsets.
      offsets[v] = load_spread_bytes(at + kQuantizedPanel) ^ set1_byte(128);
    }
  }

  /// Returns four columns of vector v, from the block of its panel.
  Bytes values(const std::uint8_t* block, int step, int v) const {
    return scaled(Kind::packed(block, step, v % kVectorsPerPanel), multipliers[v]) + offsets[v];
  }

  Factors multipliers[vectors];
  Bytes offsets[vectors];
};

template <int bits>
void unpack_affine(const UnpackArgs& args) {
  using Kind = Affine<bits>;
  const std::uint8_t* from = args.from;
  const std::int8_t* factors = args.affine;
  std::uint8_t* to = args.to;
  for (std::int64_t column = 0; column < args.columns; column += kAffineColumns) {
    const AffineBlock<Kind, kVectorsPerPanel> block(factors, 0);
#pragma GCC unroll 8
    for (int step = 0; step < Kind::kSteps; ++step, to += kStepBytes) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectorsPerPanel; ++v) store_bytes(to + v * kVectorBytes, block.values(from, step, v));
    }
    from += Kind::kBytes;
    factors += Kind::kFactors;
  }
}

template <class Stored>
void unpack_stored(const Stored& stored, const std::uint8_t* src, std::int64_t columns, std::uint8_t* dst) {
  using D = typename Stored::Dots;
  for (std::int64_t column = 0; column < columns; column += 4 * Stored::kSteps, src += Stored::kBytes) {
#pragma GCC unroll 8
    for (int step = 0; step < Stored::kSteps; ++step) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectorsPerPanel; ++v) {
        D::unpack(dst + v * kVectorBytes * D::kUnpackedBytes, stored.values(src, step, v));
      }
      dst += kStepBytes * D::kUnpackedBytes;
    }
  }
}

/// Calls run(kind) with the storage kind of the weights in a panel.
template <class Run>
inline void with_kind(int bits, Codebook codebook, const Run& run) {
  if (codebook != Codebook::none) return run(InCodebook(codebook));
  switch (bits) {
    case 2:
      return run(InPanel<2>());
    case 3:
      return run(InPanel<3>());
    case 4:
      return run(InPanel<4>());
    case 5:
      return run(InPanel<5>());
    case 6:
      return run(InPanel<6>());
    default:
      return run(InPanel<8>());
  }
}

/// Calls run(kind) with the storage kind of an affine format.
template <class Run>
inline void with_affine_kind(int bits, const Run& run) {
  return bits == 4 ? run(Affine<4>()) : run(Affine<6>());
}

void unpack(const UnpackArgs& args) {
  if (args.affine != nullptr) {
    return with_affine_kind(args.bits, [&]<int bits>(Affine<bits>) { unpack_affine<bits>(args); });
  }
  with_kind(args.bits, args.codebook,
            [&](const auto& stored) { unpack_stored(stored, args.from, args.columns, args.to); });
}

}  // namespace
}  // namespace pagoda::kernels::PAGODA_SIMD
