#include "engine/memory/block_hash.hpp"

#include <bit>

namespace pagoda::memory {

namespace {

enum class KeyPart : std::uint64_t { salt = 1, adapter = 2, parent = 3, tokens = 4 };

void add_part(SipHash128& hash, KeyPart part, std::size_t length) {
  hash.add(static_cast<std::uint64_t>(part) << 56 | static_cast<std::uint64_t>(length));
}

}  // namespace

SipHash128::SipHash128(const HashKey& key)
    : v0_(key[0] ^ 0x736f6d6570736575U),
      v1_(key[1] ^ 0x646f72616e646f6dU ^ 0xeeU),
      v2_(key[0] ^ 0x6c7967656e657261U),
      v3_(key[1] ^ 0x7465646279746573U) {}

void SipHash128::round() {
  v0_ += v1_;
  v1_ = std::rotl(v1_, 13) ^ v0_;
  v0_ = std::rotl(v0_, 32);
  v2_ += v3_;
  v3_ = std::rotl(v3_, 16) ^ v2_;
  v0_ += v3_;
  v3_ = std::rotl(v3_, 21) ^ v0_;
  v2_ += v1_;
  v1_ = std::rotl(v1_, 17) ^ v2_;
  v2_ = std::rotl(v2_, 32);
}

void SipHash128::add(std::uint64_t word) {
  v3_ ^= word;
  round();
  round();
  v0_ ^= word;
  ++num_words_;
}

BlockHash SipHash128::finish() {
  add(num_words_ * 8 << 56);
  v2_ ^= 0xeeU;
  for (int i = 0; i < 4; ++i) round();
  BlockHash result;
  result.low = v0_ ^ v1_ ^ v2_ ^ v3_;
  v1_ ^= 0xddU;
  for (int i = 0; i < 4; ++i) round();
  result.high = v0_ ^ v1_ ^ v2_ ^ v3_;
  return result;
}

BlockHash root_hash(const HashKey& key, std::string_view cache_salt, AdapterId adapter) {
  SipHash128 hash(key);
  add_part(hash, KeyPart::salt, cache_salt.size());
  for (std::size_t i = 0; i < cache_salt.size(); i += 8) {
    std::uint64_t word = 0;
    const std::string_view bytes = cache_salt.substr(i, 8);
    for (std::size_t k = 0; k < bytes.size(); ++k)
      word |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[k])) << 8 * k;
    hash.add(word);
  }
  add_part(hash, KeyPart::adapter, 1);
  hash.add(adapter);
  return hash.finish();
}

BlockHash chain_hash(const HashKey& key, const BlockHash& parent, std::span<const TokenId> tokens) {
  SipHash128 hash(key);
  add_part(hash, KeyPart::parent, 2);
  hash.add(parent.low);
  hash.add(parent.high);
  add_part(hash, KeyPart::tokens, tokens.size());
  const auto bits = [&](std::size_t i) {
    return i < tokens.size() ? std::uint64_t{static_cast<std::uint32_t>(tokens[i])} : std::uint64_t{0};
  };
  for (std::size_t i = 0; i < tokens.size(); i += 2) hash.add(bits(i) | bits(i + 1) << 32);
  return hash.finish();
}

}  // namespace pagoda::memory
