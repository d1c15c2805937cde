#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "engine/request/request_spec.hpp"
#include "engine/scheduling/earlier_places.hpp"
#include "engine/speculation_config.hpp"
#include "engine/step/codec.hpp"
#include "engine/types.hpp"

namespace pagoda::scheduling {

/// The outputs of sequences that have ended, in which drafts for later requests are found. Requests see only outputs of
/// their own user with their own cache salt. Keeps the latest outputs, about 16 bytes for each token. When there are
/// too many, the user with the most tokens loses the older half of them.
class OutputHistory {
 public:
  /// Stands behind each output, and is no token.
  static constexpr TokenId kEnd = -1;

  /// Tokens of several outputs, and where their n-grams are.
  struct Text {
    JoinedTokens joined() const { return {tokens, {}}; }

    TokenIds tokens;
    std::int32_t num_outputs = 0;
    EarlierPlaces places;
  };
  /// The texts of a user, the newer one first. Valid until outputs are added; null = there are none.
  using Texts = std::array<const Text*, 2>;

  /// Keeps outputs only if `config` wants them.
  explicit OutputHistory(const SpeculationConfig& config) : config_(config) {}

  void add(const RequestSpec& spec, std::span<const TokenId> output);
  Texts find(const RequestSpec& spec) const;
  /// Returns a number that changes when outputs are added.
  std::int64_t version() const { return version_; }

  void save(Encoder& out) const;
  /// Restores a saved state. The history must be new. Returns false if the bytes are no such state.
  bool load(Decoder& in, std::int64_t vocab_size);

 private:
  /// The user and the cache salt.
  using Owner = std::pair<std::string, std::string>;

  /// Outputs are added to `newer`. When it is full it becomes `older`, and the older ones are forgotten.
  struct Owned {
    Text newer;
    Text older;
    std::int64_t last_added = 0;  ///< version() when outputs were added last

    std::size_t num_tokens() const { return newer.tokens.size() + older.tokens.size(); }
  };

  Text text_of(TokenIds tokens, std::int32_t num_outputs) const;
  void make_room();

  const SpeculationConfig config_;
  std::int64_t version_ = 0;
  std::size_t num_tokens_ = 0;
  std::map<Owner, Owned> owned_;
};

}  // namespace pagoda::scheduling
