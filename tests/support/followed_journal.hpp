#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "engine/journal/journal.hpp"
#include "engine/journal/replay.hpp"
#include "engine/journal/state_follower.hpp"

namespace pagoda::test {

/// A journal that keeps everything in memory and has a follower, which lags behind by a number of records drawn from
/// the seed. A segment is full after `records_per_segment` records. Used by one owner only.
class FollowedJournal final : public journal::Journal, private journal::StateSink {
 public:
  struct Segment {
    std::vector<std::vector<std::byte>> states;  ///< states at its beginning, in the order in which they were written
    std::vector<std::vector<std::byte>> records;
  };

  /// `room`: maximum bytes of states in a segment.
  FollowedJournal(std::uint64_t seed, std::size_t records_per_segment,
                  std::shared_ptr<const text::Tokenizer> tokenizer = nullptr, std::size_t room = SIZE_MAX,
                  bool keeps_tokens = true)
      : random_(seed),
        records_per_segment_(records_per_segment),
        follows_output_(tokenizer != nullptr),
        room_(room),
        keeps_tokens_(keeps_tokens),
        follower_(*this, std::move(tokenizer)) {}

  std::uint64_t segment() const override { return segments_.size(); }
  bool append(std::uint64_t segment, std::span<const std::byte> record) override {
    if (segment != segments_.size()) return false;
    segments_.back().records.emplace_back(record.begin(), record.end());
    if (is_followed_[journal::read_header(record).value().core]) queue(record);
    return true;
  }
  bool append_state(std::uint64_t segment, std::span<const std::byte> record) override {
    const journal::CoreId core = journal::read_header(record).value().core;
    if (segment == segments_.size()) {
      is_followed_[core] =
          journal::StateFollower::can_follow(core) && (follows_output_ || core != journal::Source::output);
      ++num_own_states_;
    }
    return append(segment, record);
  }
  bool follows(const journal::CoreId& core) const override {
    const auto found = is_followed_.find(core);
    return found != is_followed_.end() && found->second;
  }
  void begin_segment_if_full() override {
    if (segments_.back().records.size() < records_per_segment_) return;
    segments_.emplace_back();
    used_ = 0;
  }
  std::optional<std::array<std::uint64_t, 2>> token_key() const override {
    if (keeps_tokens_) return std::nullopt;
    return std::array<std::uint64_t, 2>{3, 4};
  }

  const std::vector<Segment>& segments() const { return segments_; }
  std::int64_t num_own_states() const { return num_own_states_; }  ///< number of states that cores wrote themselves
  std::int64_t num_left_out() const { return num_left_out_; }
  std::int64_t num_lost() const { return num_lost_; }
  /// Passes all queued records to the follower.
  void catch_up() {
    while (!queue_.empty()) feed();
  }

  journal::ReplayReport replay(std::size_t first_segment = 0,
                               std::shared_ptr<const text::Tokenizer> tokenizer = nullptr) const {
    journal::Replay replay({}, std::move(tokenizer));
    for (std::size_t i = first_segment; i < segments_.size(); ++i) {
      replay.begin_segment(i + 1);
      for (const auto& state : segments_[i].states) replay.record(state);
      for (const auto& record : segments_[i].records) replay.record(record);
    }
    return replay.report();
  }

 private:
  void queue(std::span<const std::byte> record) {
    queue_.emplace_back(segments_.size(), std::vector<std::byte>(record.begin(), record.end()));
    while (!queue_.empty() && random_() % 8 != 0) feed();
  }
  void feed() {
    const auto [segment, record] = std::move(queue_.front());
    queue_.pop_front();
    follower_.record(segment, record);
  }
  std::optional<std::size_t> room(std::uint64_t segment) const override {
    if (segment != segments_.size()) return std::nullopt;
    return room_ - used_;
  }
  void put_first_state(std::uint64_t segment, std::span<const std::byte> record) override {
    segments_.at(segment - 1).states.emplace_back(record.begin(), record.end());
    used_ += record.size();
  }
  std::size_t max_room() const override { return room_; }
  // Accepts every state that a core writes.
  bool has_state(std::uint64_t, const journal::CoreId&) const override { return true; }
  void left_out(std::uint64_t, const journal::CoreId&, std::size_t) override { ++num_left_out_; }
  void lost(const journal::CoreId& core) override {
    is_followed_[core] = false;
    ++num_lost_;
  }

  std::mt19937_64 random_;
  std::size_t records_per_segment_;
  bool follows_output_;
  std::size_t room_;
  bool keeps_tokens_;
  std::size_t used_ = 0;
  std::vector<Segment> segments_{1};
  std::map<journal::CoreId, bool> is_followed_;
  std::deque<std::pair<std::uint64_t, std::vector<std::byte>>> queue_;
  std::int64_t num_own_states_ = 0;
  std::int64_t num_left_out_ = 0;
  std::int64_t num_lost_ = 0;
  journal::StateFollower follower_;
};

}  // namespace pagoda::test
