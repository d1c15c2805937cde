#include "io/model_files/sentencepiece_proto.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace pagoda::io {
namespace {

constexpr std::uint32_t kHasValue = 1U << 8;

/// A charsmap whose double array begins with no paths at all, and one text, which is empty.
class Charsmap {
 public:
  static constexpr std::uint32_t kUnits = 512;

  Charsmap& unit(std::size_t index, std::uint32_t value) {
    units_[index] = value;
    return *this;
  }
  /// `byte` leads on to `base`, from a unit at `index`.
  Charsmap& lead(std::uint32_t index, std::uint32_t byte, std::uint32_t base, std::uint32_t more = 0) {
    return unit(index, byte | more | (index ^ base) << 10);
  }
  std::string bytes() const {
    std::string bytes(4 + sizeof(units_) + 1, '\0');
    const std::uint32_t size = sizeof(units_);
    std::memcpy(bytes.data(), &size, sizeof(size));
    std::memcpy(bytes.data() + 4, units_.data(), sizeof(units_));
    return bytes;
  }

 private:
  std::array<std::uint32_t, kUnits> units_{};
};

TEST(SoundCharsmap, MayHaveNoPaths) {
  EXPECT_TRUE(is_valid_charsmap(Charsmap().bytes()));
}

TEST(SoundCharsmap, MayHavePathsThatMeet) {
  Charsmap charsmap;
  charsmap.lead('a', 'a', 256).lead('b', 'b', 256).lead(256 ^ 'c', 'c', 0x1A0, kHasValue);
  EXPECT_TRUE(is_valid_charsmap(charsmap.bytes()));
}

TEST(SoundCharsmap, BeginsWithAUnitThatLeadsSomewhere) {
  EXPECT_FALSE(is_valid_charsmap(Charsmap().unit(0, 0xFFFFFFFFU).bytes()));
}

TEST(SoundCharsmap, LeadsNowhereOutside) {
  EXPECT_FALSE(is_valid_charsmap(Charsmap().lead('a', 'a', 512).bytes()));
}

TEST(SoundCharsmap, HasNoPathThatRunsInACircle) {
  EXPECT_FALSE(is_valid_charsmap(Charsmap().lead('a', 'a', 0, kHasValue).bytes()));
}

TEST(SoundCharsmap, HasNoValueOutsideOfItsTexts) {
  Charsmap charsmap;
  charsmap.lead('a', 'a', 256, kHasValue).unit(256, 1U << 31 | 5);
  EXPECT_FALSE(is_valid_charsmap(charsmap.bytes()));
}

TEST(SoundCharsmap, HasNoMoreThan32ValuesOnAPath) {
  // "a", "aa", ...: each leads on to the base with the next number, and all have the one empty text.
  const auto values = [](std::uint32_t count) {
    Charsmap charsmap;
    std::uint32_t base = 0;
    for (std::uint32_t i = 1; i <= count; ++i) {
      const std::uint32_t next = 256 + i;
      charsmap.lead(base ^ 'a', 'a', next, kHasValue);
      base = next;
    }
    return charsmap.bytes();
  };
  EXPECT_TRUE(is_valid_charsmap(values(31)));
  EXPECT_FALSE(is_valid_charsmap(values(33)));
}

TEST(SentencePieceProtos, ComeBackAsTheyWereWritten) {
  SentencePieceProto proto;
  proto.pieces = {{"<unk>", 0, SentencePieceProto::PieceType::unknown},
                  {"\u2581a", -1.5F, SentencePieceProto::PieceType::normal},
                  {"<0x41>", 0, SentencePieceProto::PieceType::byte}};
  proto.byte_fallback = true;
  proto.add_dummy_prefix = false;
  proto.remove_extra_whitespaces = true;
  const std::string charsmap = Charsmap().bytes();
  proto.precompiled_charsmap = charsmap;
  for (const auto algorithm : {SentencePieceProto::Algorithm::bpe, SentencePieceProto::Algorithm::unigram}) {
    proto.algorithm = algorithm;
    const std::string bytes = serialize(proto);
    const auto read = parse_sentencepiece_proto(bytes);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->algorithm, algorithm);
    ASSERT_EQ(read->pieces.size(), 3);
    EXPECT_EQ(read->pieces[1].text, "\u2581a");
    EXPECT_EQ(read->pieces[1].score, -1.5F);
    EXPECT_EQ(read->pieces[2].type, SentencePieceProto::PieceType::byte);
    EXPECT_TRUE(read->byte_fallback && read->remove_extra_whitespaces && read->escape_whitespaces);
    EXPECT_FALSE(read->add_dummy_prefix || read->treat_whitespace_as_suffix);
    EXPECT_EQ(read->precompiled_charsmap, charsmap);
    EXPECT_TRUE(check_sentencepiece_proto(*read));
    for (std::size_t size = 1; size < bytes.size(); ++size) {
      const auto cut = parse_sentencepiece_proto(std::string_view(bytes).substr(0, size));
      EXPECT_LE(cut ? cut->pieces.size() : 0, 3) << size;
    }
  }
}

TEST(SentencePieceProtos, MeanTheUsualWhereTheySayNothing) {
  const auto read = parse_sentencepiece_proto("");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->algorithm, SentencePieceProto::Algorithm::unigram);
  EXPECT_TRUE(read->add_dummy_prefix && read->remove_extra_whitespaces && read->escape_whitespaces);
  EXPECT_FALSE(read->byte_fallback || read->treat_whitespace_as_suffix);
}

TEST(SentencePieceProtos, ThatAreDamagedAreRefused) {
  using namespace std::string_view_literals;
  for (const std::string_view bytes : {
           "\x0a\x7f"sv,                                          // longer than what is left
           "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"sv,      // a length near 2^64
           "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"sv,  // a number of eleven bytes
           "\x02\x00"sv,                                          // field 0
           "\x0b\x0c"sv,                                          // a group
           "\x0a\x02\x15\x00"sv,                                  // a score cut off
           "\x1a\x02\x12\x05"sv,                                  // a table cut off
       }) {
    EXPECT_FALSE(parse_sentencepiece_proto(bytes)) << bytes.size();
  }
}

TEST(SentencePieceProtos, WithWhatTheLibraryCannotBeGivenAreRefused) {
  SentencePieceProto proto;
  proto.pieces = {{"a", std::numeric_limits<float>::quiet_NaN()}};
  EXPECT_FALSE(check_sentencepiece_proto(proto));
  proto.pieces.front().score = 0;
  EXPECT_TRUE(check_sentencepiece_proto(proto));
  const std::string leads_outside = Charsmap().lead('a', 'a', 512).bytes();
  proto.precompiled_charsmap = leads_outside;
  EXPECT_FALSE(check_sentencepiece_proto(proto));
  proto.precompiled_charsmap = {};
  proto.denormalizer_charsmap = leads_outside;
  EXPECT_FALSE(check_sentencepiece_proto(proto));
}

}  // namespace
}  // namespace pagoda::io
