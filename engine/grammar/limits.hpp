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
inline constexpr std::int64_t kMaxExpressions = 200'000;  ///< in all its rules
inline constexpr std::size_t kMaxChoices = 2'000;         ///< of choice, and of one enum
/// minLength, minItems, {m,} and their like; a maximum beyond it is none, since no text is as long.
inline constexpr std::int64_t kMaxRepetitions = std::int64_t{1} << 30;
inline constexpr std::size_t kMaxProperties = 500;             ///< declared in one object
inline constexpr std::size_t kMaxPropertyNameBytes = 256;      ///< of one declared property
inline constexpr std::size_t kMaxLanguageStates = 4'096;       ///< of patterns and lengths that are joined
inline constexpr std::int64_t kMaxLanguageSteps = 10'000'000;  ///< of joining all those of a schema
inline constexpr std::size_t kMaxNameClasses = 64;  ///< of names that patternProperties tell apart in one object
inline constexpr std::size_t kMaxAutomatonBytes = std::size_t{32} << 20;  ///< of what all of it becomes
/// Of what is kept of a grammar's item sets. It is forgotten then, and found again where it is needed.
inline constexpr std::size_t kMaxItemSetBytes = std::size_t{8} << 20;
inline constexpr std::size_t kMaxMaskBytes = std::size_t{4} << 20;  ///< of the masks that are kept of a grammar
inline constexpr std::size_t kMaxSlices = 8;  ///< classes of characters whose tokens are known as a whole
/// What one mask may take of item sets: where it takes more, nothing may follow.
inline constexpr std::size_t kMaxWalkBytes = std::size_t{128} << 20;
/// What all masks of a request may take of items that are looked at, since other requests wait meanwhile: so many at
/// once (a tenth of a second), and with each mask so many more (some milliseconds). Where they take more, nothing
/// may follow.
inline constexpr std::uint64_t kMaxMaskWork = 4'000'000;
inline constexpr std::uint64_t kMaskWorkPerMask = 100'000;

}  // namespace pagoda::grammar
