#pragma once

#include <cstddef>
#include <cstdint>

/// What a grammar may be at most, beside kMaxStructuredOutputBytes. Requests beyond are refused before anything is
/// compiled; inside, compiling ends in bounded time and memory (tests/engine/grammar/hostile_grammar_test.cpp).
namespace pagoda::grammar {

inline constexpr std::size_t kMaxRegexBytes = 4096;  ///< of one regex or pattern
inline constexpr int kMaxDepth = 64;                 ///< of objects in a schema, of groups in a regex or grammar
inline constexpr std::int64_t kMaxSchemas = 10'000;  ///< schemas in a schema, those that are merged included
inline constexpr std::size_t kMaxMembers = 4'000;    ///< of one object of a schema's text
inline constexpr std::int64_t kMaxCopiedNodes =
    1'000'000;                                    ///< values of JSON that joining and converting a schema copies
inline constexpr std::size_t kMaxRules = 50'000;  ///< of a grammar
inline constexpr std::int64_t kMaxExpressions = 200'000;   ///< in all its rules
inline constexpr std::size_t kMaxChoices = 2'000;          ///< of choice, and of one enum
inline constexpr std::int64_t kMaxRepetitions = 1'000;     ///< minLength, maxItems, {m,n} and their like
inline constexpr std::size_t kMaxProperties = 500;         ///< declared in one object
inline constexpr std::size_t kMaxPropertyNameBytes = 256;  ///< of one declared property
inline constexpr std::size_t kMaxEbnfBytes = 512 << 10;    ///< of the grammar that all of it becomes

}  // namespace pagoda::grammar
