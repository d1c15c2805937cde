#pragma once

#include <cstddef>
#include <list>
#include <mutex>

#include "engine/grammar/compiled_grammar.hpp"
#include "engine/request/structured_output.hpp"

namespace pagoda::grammar {

/// The most recently used grammars of one vocabulary. Thread-safe. Grammars grow while they are used, so their sizes
/// are checked when one is found or kept.
class GrammarCache {
 public:
  explicit GrammarCache(std::size_t max_bytes = std::size_t{256} << 20) : max_bytes_(max_bytes) {}

  /// Returns null if the grammar is not in the cache.
  SharedGrammar find(const StructuredOutput& constraint);
  void keep(const StructuredOutput& constraint, const SharedGrammar& grammar);
  std::size_t num_bytes() const;

 private:
  struct Kept {
    StructuredOutput constraint;
    SharedGrammar grammar;
  };
  static std::size_t bytes_of(const Kept& kept);
  std::size_t bytes_of_all() const;
  std::list<Kept>::iterator look_up(const StructuredOutput& constraint);
  void drop_oldest();

  mutable std::mutex mutex_;
  std::list<Kept> kept_;  ///< most recently used first
  std::size_t max_bytes_;
};

}  // namespace pagoda::grammar
