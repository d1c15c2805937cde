#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/grammar/automaton.hpp"
#include "engine/types.hpp"

namespace pagoda::grammar {

/// Tokens by their bytes: a tree whose nodes stand in the order in which a walk meets them.
class TokenTrie {
 public:
  struct Node {
    std::uint32_t end = 0;          ///< index after the last node of its subtree
    std::uint32_t first_token = 0;  ///< its tokens end where those of the next node begin
    std::uint32_t depth = 0;        ///< 0 = after the first byte
    std::uint8_t byte = 0;
  };

  TokenTrie() : TokenTrie(std::span<const std::pair<std::string_view, TokenId>>()) {}
  /// `sorted`: the tokens in the order of their bytes, of which none are empty.
  explicit TokenTrie(std::span<const std::pair<std::string_view, TokenId>> sorted);

  std::size_t size() const { return nodes_.size() - 1; }
  const Node& node(std::size_t index) const { return nodes_[index]; }
  std::span<const TokenId> tokens(std::size_t index) const {
    const std::uint32_t first = nodes_[index].first_token;
    return std::span(tokens_).subspan(first, nodes_[index + 1].first_token - first);
  }
  /// Returns the largest number of nodes on one path.
  std::size_t height() const { return height_; }

 private:
  std::vector<Node> nodes_;  ///< with one more node, which ends them
  std::vector<TokenId> tokens_;
  std::size_t height_ = 0;
};

/// All tokens, divided by a class: those that consist of its characters, as a mask, and all others.
struct TokenSlice {
  CharacterClass characters;
  std::vector<std::uint32_t> mask;
  TokenTrie others;
};

/// The texts of a model's tokens. Thread-safe.
class Vocabulary {
 public:
  struct TokenLength {
    TokenId token = 0;
    std::uint32_t num_characters = 0;
  };

  /// `tokens`: [token] its bytes; tokens without bytes are never allowed. The tokens `ends` end a text, and come
  /// nowhere else.
  Vocabulary(const std::vector<std::string>& tokens, TokenIds ends);

  std::int64_t size() const { return size_; }
  std::span<const TokenId> ends() const { return ends_; }
  bool is_end(TokenId token) const;
  /// Returns the token's bytes; empty for end tokens, and for tokens that are never allowed.
  std::string_view bytes(TokenId token) const {
    const auto id = static_cast<std::size_t>(token);
    return std::string_view(bytes_).substr(begins_[id], begins_[id + 1] - begins_[id]);
  }
  const TokenTrie& trie() const { return trie_; }
  /// Returns the lengths of the tokens that are whole characters, the longest first.
  std::span<const TokenLength> lengths() const { return lengths_; }
  /// Returns the slice of a class, which is made when it is first requested. Null when there already are kMaxSlices
  /// others.
  const TokenSlice* slice(const CharacterClass& characters) const;

 private:
  std::int64_t size_;
  TokenIds ends_;
  std::string bytes_;  ///< bytes of all tokens
  std::vector<std::uint32_t> begins_;
  std::vector<std::pair<std::string_view, TokenId>> sorted_;
  TokenTrie trie_;
  std::vector<TokenLength> lengths_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<const TokenSlice>> slices_;
};

}  // namespace pagoda::grammar
