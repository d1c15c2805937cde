#pragma once

/// Format of a journal's file, for writer and reader. Little-endian:
///
///   file:    header of 4096 bytes (magic "PAGODA-J", u32 format, u32 number of segments, u64 bytes of a segment, u64
///            layout of records, u32 length and text of the version that wrote it; at 296 u64 layout of the records of
///            resumable requests, 0 if it is not known), then the segments
///   segment: u64 number (0 = empty; the next segment has the next number, or the one after it if records before it are
///            missing), then records, each at a multiple of 8
///   record:  u32 length (0 = end of the segment), u32 checksum (XXH3 of the bytes, with the segment's number as seed),
///            the bytes
///
/// The state that a core had at the beginning of a segment is written in pieces while the segment fills: records of
/// Source, kStatePiece, replica, rank, flags, bytes (journal::header_of). A state whose last piece is missing is
/// ignored.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "engine/journal/journal.hpp"

namespace pagoda::io::journal_format {

inline constexpr std::string_view kMagic = "PAGODA-J";
inline constexpr std::uint32_t kFormat = 7;
inline constexpr std::size_t kHeaderBytes = 4096;
// Offsets in the header:
inline constexpr std::size_t kFormatAt = 8;
inline constexpr std::size_t kNumSegmentsAt = 12;
inline constexpr std::size_t kSegmentBytesAt = 16;
inline constexpr std::size_t kLayoutAt = 24;
inline constexpr std::size_t kVersionAt = 32;
inline constexpr std::size_t kMaxVersionBytes = 256;
inline constexpr std::size_t kResumableLayoutAt = 296;

inline constexpr std::uint32_t kNumSegments = 4;
inline constexpr std::size_t kSegmentHeaderBytes = 8;
inline constexpr std::size_t kRecordHeaderBytes = 8;
inline constexpr std::size_t kMinSegmentBytes = 64 << 10;

inline constexpr std::byte kStatePiece{126};  ///< record kind beside kState and others of engine/journal/journal.hpp
inline constexpr std::size_t kPieceFlagsAt = journal::kRecordHeaderBytes;
inline constexpr std::size_t kPieceHeaderBytes = kPieceFlagsAt + 1;
inline constexpr std::byte kFirstPiece{1};
inline constexpr std::byte kLastPiece{2};
inline constexpr std::byte kForRecovery{4};  ///< piece of a kRecoveryState; else of a kState

constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + 7) & ~std::size_t{7};
}

template <class T>
void put(std::span<std::byte> to, std::size_t at, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) to[at + i] = static_cast<std::byte>(value >> (8 * i));
}

template <class T>
T get(std::span<const std::byte> from, std::size_t at) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(static_cast<T>(from[at + i]) << (8 * i));
  return value;
}

std::uint32_t checksum(std::span<const std::byte> record, std::uint64_t segment);

}  // namespace pagoda::io::journal_format
