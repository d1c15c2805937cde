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

Encoder Recorder::begin(std::uint8_t what) {
  record_.clear();
  Encoder out(record_);
  out.put(source_);
  out.put(what);
  return out;
}

/// When a new segment has begun, writes the core's state to it first, unless a follower does.
void Recorder::append_input() {
  while (!journal_->append(segment_, record_)) {
    const std::uint64_t segment = journal_->segment();
    if (segment_ != 0 && journal_->follows(source_)) {
      segment_ = segment;
      continue;
    }
    std::vector<std::byte> state;
    Encoder out(state);
    out.put(source_);
    out.put(kState);
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
