#pragma once

#include <cstddef>
#include <cstdint>

/// The limits of a grammar, besides kMaxStructuredOutputBytes. Requests beyond them are refused before anything is
/// compiled. Within them, compiling ends in bounded time and memory (tests/engine/grammar/hostile_grammar_test.cpp).
namespace pagoda::grammar {

inline constexpr std::size_t kMaxRegexBytes = 4096;  ///< bytes of one regex or pattern
/// Nesting of objects in a schema, of groups in a regex or grammar.
inline constexpr int kMaxDepth = 64;
inline constexpr std::int64_t kMaxSchemas = 10'000;  ///< schemas in a schema, including merged ones
inline constexpr std::size_t kMaxMembers = 4'000;    ///< members of one object of a schema's text
inline constexpr std::int64_t kMaxCopiedNodes =
    1'000'000;                                    ///< values of JSON that joining and converting a schema copies
inline constexpr std::size_t kMaxRules = 50'000;  ///< rules of a grammar
inline constexpr std::int64_t kMaxExpressions = 200'000;  ///< expressions in all rules of a grammar
inline constexpr std::size_t kMaxChoices = 2'000;         ///< texts of choice, and values of one enum
/// Values of an enum whose items an array with uniqueItems has.
inline constexpr std::size_t kMaxUniqueValues = 62;
/// Largest minLength, minItems, {m,} and the like. A larger maximum counts as none, since no text is as long.
inline constexpr std::int64_t kMaxRepetitions = std::int64_t{1} << 30;
inline constexpr std::size_t kMaxProperties = 500;         ///< properties declared in one object
inline constexpr std::size_t kMaxPropertyNameBytes = 256;  ///< bytes of the name of one declared property
inline constexpr std::size_t kMaxLanguageStates = 4'096;   ///< states of patterns and lengths that are joined
/// Steps of joining all patterns and lengths of a schema.
inline constexpr std::int64_t kMaxLanguageSteps = 10'000'000;
/// Classes of names that patternProperties tell apart in one object.
inline constexpr std::size_t kMaxNameClasses = 64;
inline constexpr std::size_t kMaxAutomatonBytes = std::size_t{32} << 20;  ///< bytes of the automaton of a grammar
/// Bytes of the item sets that are kept of a grammar. Beyond that they are dropped, and made again where they are
/// needed.
inline constexpr std::size_t kMaxItemSetBytes = std::size_t{8} << 20;
inline constexpr std::size_t kMaxMaskBytes = std::size_t{4} << 20;  ///< bytes of the masks that are kept of a grammar
inline constexpr std::size_t kMaxSlices = 8;  ///< number of classes of characters whose tokens are known as a whole
/// Bytes of item sets that one mask may take. If it takes more, nothing may follow.
inline constexpr std::size_t kMaxWalkBytes = std::size_t{128} << 20;
/// Items that all masks of a request may look at, since other requests wait meanwhile: kMaxMaskWork at once (a tenth of
/// a second), and kMaskWorkPerMask more with each mask (some milliseconds). If they take more, nothing may follow.
inline constexpr std::uint64_t kMaxMaskWork = 4'000'000;
inline constexpr std::uint64_t kMaskWorkPerMask = 100'000;

}  // namespace pagoda::grammar
