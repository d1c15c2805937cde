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

/// Tokens by their bytes, as a tree in the order in which a walk meets its nodes.
class TokenTrie {
 public:
  struct Node {
    std::uint32_t end = 0;          ///< behind the last node of its subtree
    std::uint32_t first_token = 0;  ///< its tokens go to the next node's
    std::uint32_t depth = 0;        ///< 0 = behind a first byte
    std::uint8_t byte = 0;
  };

  TokenTrie() : TokenTrie(std::span<const std::pair<std::string_view, TokenId>>()) {}
  /// In order of their bytes, none of them empty.
  explicit TokenTrie(std::span<const std::pair<std::string_view, TokenId>> sorted);

  std::size_t size() const { return nodes_.size() - 1; }
  const Node& node(std::size_t index) const { return nodes_[index]; }
  std::span<const TokenId> tokens(std::size_t index) const {
    const std::uint32_t first = nodes_[index].first_token;
    return std::span(tokens_).subspan(first, nodes_[index + 1].first_token - first);
  }
  /// Of nodes on one path.
  std::size_t height() const { return height_; }

 private:
  std::vector<Node> nodes_;  ///< and one that ends them
  std::vector<TokenId> tokens_;
  std::size_t height_ = 0;
};

/// The tokens that are characters of a class and nothing else, as a mask, and all others.
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

  /// [token]: its bytes; those without any are never allowed. Those of `ends` end a text, and come nowhere else.
  Vocabulary(const std::vector<std::string>& tokens, TokenIds ends);

  std::int64_t size() const { return size_; }
  std::span<const TokenId> ends() const { return ends_; }
  bool is_end(TokenId token) const;
  /// Empty of ends, and of what is never allowed.
  std::string_view bytes(TokenId token) const {
    const auto id = static_cast<std::size_t>(token);
    return std::string_view(bytes_).substr(begins_[id], begins_[id + 1] - begins_[id]);
  }
  const TokenTrie& trie() const { return trie_; }
  /// Of the tokens that are whole characters; the longest first.
  std::span<const TokenLength> lengths() const { return lengths_; }
  /// Made when it is asked for first. Null when there are kMaxSlices others.
  const TokenSlice* slice(const CharacterClass& characters) const;

 private:
  std::int64_t size_;
  TokenIds ends_;
  std::string bytes_;  ///< of all tokens
  std::vector<std::uint32_t> begins_;
  std::vector<std::pair<std::string_view, TokenId>> sorted_;
  TokenTrie trie_;
  std::vector<TokenLength> lengths_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<const TokenSlice>> slices_;
};

}  // namespace pagoda::grammar
