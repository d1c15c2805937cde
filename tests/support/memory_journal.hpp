#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "engine/journal/journal.hpp"
#include "engine/journal/replay.hpp"

namespace pagoda::test {

/// A journal that keeps everything in memory. A segment is full after `records_per_segment` records.
class MemoryJournal final : public journal::Journal {
 public:
  /// When segments begin: between two plans of the scheduler, or before any record, as where the scheduler of another
  /// replica begins them.
  enum class Begins : std::uint8_t { between_plans, anywhere };

  explicit MemoryJournal(std::size_t records_per_segment, bool keeps_tokens = true,
                         Begins begins = Begins::between_plans)
      : records_per_segment_(records_per_segment), keeps_tokens_(keeps_tokens), begins_(begins) {}

  using Segment = std::vector<std::vector<std::byte>>;

  std::uint64_t segment() const override {
    const std::lock_guard lock(mutex_);
    return segments_.size();
  }
  bool append(std::uint64_t segment, std::span<const std::byte> record) override {
    const std::lock_guard lock(mutex_);
    if (segment != segments_.size()) return false;
    if (begins_ == Begins::anywhere && record[1] != std::byte{journal::kState} && is_full()) {
      segments_.emplace_back();
      return false;
    }
    segments_.back().emplace_back(record.begin(), record.end());
    return true;
  }
  void begin_segment_if_full() override {
    const std::lock_guard lock(mutex_);
    if (is_full()) segments_.emplace_back();
  }

  std::optional<std::array<std::uint64_t, 2>> token_key() const override {
    if (keeps_tokens_) return std::nullopt;
    return std::array<std::uint64_t, 2>{3, 4};
  }

  std::vector<Segment> segments() const {
    const std::lock_guard lock(mutex_);
    return segments_;
  }

  /// Replays the cores from segment `first_segment` on.
  journal::ReplayReport replay(std::size_t first_segment = 0,
                               std::shared_ptr<const text::Tokenizer> tokenizer = nullptr) const {
    journal::Replay replay({}, std::move(tokenizer));
    const auto all = segments();
    for (std::size_t i = first_segment; i < all.size(); ++i) {
      replay.begin_segment(i + 1);
      for (const auto& record : all[i]) replay.record(record);
    }
    return replay.report();
  }

 private:
  bool is_full() const { return segments_.back().size() >= records_per_segment_; }

  std::size_t records_per_segment_;
  bool keeps_tokens_;
  Begins begins_;
  mutable std::mutex mutex_;
  std::vector<Segment> segments_{1};
};

/// Returns the differences that a replay found, one per line.
inline std::string differences_of(const journal::ReplayReport& report) {
  std::string text;
  for (const journal::Difference& difference : report.differences) {
    text += "segment " + std::to_string(difference.segment) + ", record " + std::to_string(difference.record) + ": " +
            to_string(difference.core) + " " + difference.what + "\n";
  }
  return text;
}

}  // namespace pagoda::test
