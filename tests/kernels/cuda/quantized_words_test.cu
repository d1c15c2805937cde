#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/quantized_fragments.cuh"
#include "kernels/quantized_pack.hpp"

namespace pagoda::kernels::cuda {
namespace {

constexpr int kColumns = 64;

int signed_byte(std::uint32_t word, int i) {
  return static_cast<std::int8_t>(word >> 8 * i & 0xFFU);
}

/// Random integers in two rows of a panel, and the packed panel.
struct PackedRows {
  explicit PackedRows(int bits) : panel(static_cast<std::size_t>(kColumns * kPanelRows * bits / 8)) {
    std::mt19937 random(static_cast<unsigned>(bits));
    std::vector<std::uint32_t> words(kColumns / 4 * kPanelRows);
    for (std::size_t row = 0; row < 2; ++row) {
      for (std::size_t k = 0; k < kColumns; ++k) {
        q[row].push_back(static_cast<std::uint8_t>(random() % (1U << bits)));
        words[k / 4 * kPanelRows + row] |= std::uint32_t{q[row].back()} << k % 4 * 8;
      }
    }
    pack_words(bits, words.data(), kColumns, panel.data());
  }

  std::uint32_t word(int place, int row) const {
    std::uint32_t word = 0;
    for (int i = 3; i >= 0; --i) word = word << 8 | panel[static_cast<std::size_t>((place * kPanelRows + row) * 4 + i)];
    return word;
  }

  std::vector<std::uint8_t> q[2];
  std::vector<std::uint8_t> panel;
};

TEST(QuantizedWords, EightPlacesHaveTheValuesOfTheCodebook) {
  std::mt19937 random(7);
  for (const Codebook codebook : {Codebook::iq4_nl, Codebook::nf4, Codebook::fp4, Codebook::e2m1}) {
    const CodebookWords table = words_of(codebook);
    for (int n = 0; n < 1000; ++n) {
      const auto indices = static_cast<std::uint32_t>(random());
      const uint2 values = values_at(indices, table);
      for (int i = 0; i < 4; ++i) {
        ASSERT_EQ(signed_byte(values.x, i), values_of(codebook)[indices >> 8 * i & 15U]);
        ASSERT_EQ(signed_byte(values.y, i), values_of(codebook)[indices >> (8 * i + 4) & 15U]);
      }
    }
  }
}

template <Coding coding>
void expect_quads() {
  const PackedRows rows(kBitsOf<coding>);
  constexpr int kQuads = kBlockColumns<coding> / 4;
  for (int quad = 0; quad < kColumns / 4; ++quad) {
    const int block = quad / kQuads * kBlockWords<coding>;
    const int in_block = quad % kQuads;
    const std::uint32_t low = rows.word(block + in_block / 2, 0);
    const std::uint32_t high = rows.word(block + kBlockWords<coding> - 1, 0);
    const std::uint32_t bytes = one_quad<coding>(low, high, in_block, {});
    for (int i = 0; i < 4; ++i) {
      ASSERT_EQ(byte_of<coding>(bytes, i, 3),
                static_cast<float>(rows.q[0][static_cast<std::size_t>(4 * quad + i)] - 3));
    }
    if constexpr (coding != Coding::int8) {
      const uint2 both = two_quads<coding>(low, high, in_block / 2, {});
      ASSERT_EQ(in_block % 2 == 0 ? both.x : both.y, bytes);
    }
  }
}

TEST(QuantizedWords, QuadsHaveTheIntegersThatWerePacked) {
  expect_quads<Coding::int4>();
  expect_quads<Coding::int5>();
  expect_quads<Coding::int6>();
  expect_quads<Coding::int8>();
}

/// `number(q)`: the number that a fragment contains for stored integer q.
template <Coding coding, class Number>
void expect_fragments(const CodebookWords& table, const Number& number) {
  const PackedRows rows(kBitsOf<coding>);
  constexpr int kLoads = kBitsOf<coding> == 4 ? 1 : 2;
  for (int column = 0; column < kColumns; column += 8) {
    const int t = column / 8 % 4;
    uint2 words[kLoads];
    for (int i = 0; i < kLoads; ++i) {
      const int word = word_of_columns<coding>(column, i);
      words[i] = {rows.word(word, 0), rows.word(word, 1)};
    }
    std::uint32_t a[4];
    fragment_of<coding>(words, t, table, a);
    for (int register_of = 0; register_of < 4; ++register_of) {
      for (int i = 0; i < 4; ++i) {
        const auto at = static_cast<std::size_t>(column + register_of / 2 * 4 + i);
        ASSERT_EQ(signed_byte(a[register_of], i), number(rows.q[register_of % 2][at])) << column << " " << register_of;
      }
    }
  }
}

template <Coding coding>
void expect_fragments_of_integers() {
  expect_fragments<coding>(
      {}, [](int q) { return (q - static_cast<int>(kMiddle<coding>)) * static_cast<int>(kFragmentFactor<coding>); });
}

TEST(QuantizedWords, FragmentsHaveTheIntegersFromTheirMiddleOn) {
  expect_fragments_of_integers<Coding::int4>();
  expect_fragments_of_integers<Coding::int5>();
  expect_fragments_of_integers<Coding::int6>();
  expect_fragments_of_integers<Coding::int8>();
  expect_fragments<Coding::codebook>(words_of(Codebook::nf4),
                                     [](int q) { return int{values_of(Codebook::nf4)[static_cast<std::size_t>(q)]}; });
}

}  // namespace
}  // namespace pagoda::kernels::cuda
