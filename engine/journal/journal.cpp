#include "engine/journal/journal.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace pagoda::journal {

std::uint64_t digest(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

SharedJournal unless_tokens_are_hidden(SharedJournal journal) {
  return journal && journal->token_key() ? nullptr : std::move(journal);
}

const char* to_string(Source source) {
  switch (source) {
    case Source::setup:
      return "setup";
    case Source::scheduler:
      return "scheduler";
    case Source::block_manager:
      return "block manager";
    case Source::step_order:
      return "step order";
    case Source::cache_order:
      return "cache order";
    case Source::router:
      return "router";
    case Source::output:
      return "output core";
  }
  return "unknown";
}

std::string to_string(const CoreId& core) {
  std::string name = to_string(core.source);
  if (core.replica > 0 || core.rank > 0) name += " of replica " + std::to_string(core.replica);
  if (core.rank > 0) name += ", rank " + std::to_string(core.rank);
  return name;
}

std::vector<std::byte> header_of(const CoreId& core, std::uint8_t what) {
  return {static_cast<std::byte>(core.source), std::byte{what}, std::byte{core.replica}, std::byte{core.rank}};
}

std::optional<RecordHeader> read_header(std::span<const std::byte> record) {
  if (record.size() < kRecordHeaderBytes || record[0] > static_cast<std::byte>(last_value(Source{}))) return {};
  const auto source = static_cast<Source>(record[0]);
  const auto replica = std::to_integer<std::int32_t>(record[2]);
  const auto rank = std::to_integer<std::int32_t>(record[3]);
  const bool has_rank = source == Source::step_order || source == Source::cache_order;
  const bool has_replica = has_rank || source == Source::scheduler || source == Source::block_manager;
  if (replica >= (has_replica ? CoreId::kMaxReplicas : 1) || rank >= (has_rank ? CoreId::kMaxRanks : 1)) return {};
  return RecordHeader{CoreId(source, {replica, rank}), std::to_integer<std::uint8_t>(record[1])};
}

Encoder Recorder::begin(std::uint8_t what) {
  const auto header = header_of(core_, what);
  record_.assign(header.begin(), header.end());
  return Encoder(record_);
}

/// When a new segment has begun, writes the core's state to it first, unless a follower does.
void Recorder::append_input() {
  while (!journal_->append(segment_, record_)) {
    const std::uint64_t segment = journal_->segment();
    if (segment_ != 0 && journal_->follows(core_)) {
      segment_ = segment;
      continue;
    }
    std::vector<std::byte> state = header_of(core_, kState);
    Encoder out(state);
    save_(out);
    if (journal_->append_state(segment, state)) segment_ = segment;
  }
}

/// Leaves out an effect whose input is in the segment before: the state at the beginning of this segment includes it.
void Recorder::append_effect() {
  const std::uint64_t value = digest(std::span(record_).subspan(kRecordHeaderBytes));
  record_.resize(kRecordHeaderBytes);
  Encoder(record_).put(value);
  journal_->append(segment_, record_);
}

}  // namespace pagoda::journal
