#include "engine/journal/state_follower.hpp"

namespace pagoda::journal {
namespace {

using output::OutputCore;

std::vector<std::byte> header_of(Source source, std::uint8_t what) {
  std::vector<std::byte> record;
  Encoder out(record);
  out.put(source);
  out.put(what);
  return record;
}

}  // namespace

void StateFollower::record(std::uint64_t segment, std::span<const std::byte> bytes) {
  Decoder in(bytes);
  Source source{};
  std::uint8_t what = 0;
  if (!in.get(source) || !in.get(what)) return;
  if (what == kState) {
    replay_.forget(source);
    followed(source) = {};
    followed(source).segment = segment;
  } else if (!replay_.matches_record(source)) {
    return;  // the sink knows this; the core writes its next state itself
  } else if (followed(source).segment != segment) {
    begin_segment(source, segment);
  }
  replay_.record(bytes);
  if (!replay_.matches_record(source)) {
    followed(source) = {};
    sink_.lost(source);
  } else if (what == kState && source == Source::output) {
    if (!sink_.has_state(segment, source)) write_output(segment);  // the segment has no room for the core's own state
    write_due(segment);
  }
}

void StateFollower::begin_segment(Source source, std::uint64_t segment) {
  replay_.forget_effect(source);
  Followed& its = followed(source);
  its.segment = segment;
  its.due.clear();
  const auto room = sink_.room(segment);
  if (!room) return;  // it is too late for this segment
  if (source == Source::output) {
    write_output(segment);
    return write_due(segment);
  }
  if (segment < its.skip_until) return;
  its.due = header_of(source, kState);
  Encoder out(its.due);
  replay_.save(source, out);
  const bool waits_for_output = replay_.matches_record(Source::output) && followed(Source::output).segment != segment;
  if (!waits_for_output) write_due(segment);
}

void StateFollower::write_output(std::uint64_t segment) {
  std::size_t num_bytes = 0;
  for (const auto which : {OutputCore::Saved::all, OutputCore::Saved::resumable, OutputCore::Saved::live_resumable}) {
    auto state = header_of(Source::output, which == OutputCore::Saved::all ? kState : kRecoveryState);
    Encoder out(state);
    replay_.output()->save(out, which);
    num_bytes = state.size();
    const auto room = sink_.room(segment);
    if (!room) return;
    if (num_bytes <= *room) return sink_.put_first_state(segment, state);
  }
  if (num_bytes > sink_.max_room()) sink_.left_out(segment, Source::output, num_bytes);
}

void StateFollower::write_due(std::uint64_t segment) {
  for (std::size_t i = 0; i < followed_.size(); ++i) {
    Followed& its = followed_[i];
    if (its.due.empty() || its.segment != segment) continue;
    const auto state = std::exchange(its.due, {});
    const auto room = sink_.room(segment);
    if (!room) continue;
    if (state.size() <= *room) {
      sink_.put_first_state(segment, state);
    } else if (state.size() > sink_.max_room()) {
      its.skip_until = segment + kSkippedSegments;
      sink_.left_out(segment, static_cast<Source>(i), state.size());
    }
  }
}

}  // namespace pagoda::journal
