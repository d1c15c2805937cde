#include "engine/journal/state_follower.hpp"

namespace pagoda::journal {
namespace {

using output::OutputCore;

}  // namespace

void StateFollower::record(std::uint64_t segment, std::span<const std::byte> bytes) {
  const auto header = read_header(bytes);
  if (!header) return;
  const auto& [core, what] = *header;
  if (what == kState) {
    replay_.forget(core);
    followed(core) = {};
    followed(core).segment = segment;
  } else if (!replay_.matches_record(core)) {
    return;  // the sink knows this; the core writes its next state itself
  } else if (followed(core).segment != segment) {
    begin_segment(core, segment);
  }
  replay_.record(bytes);
  if (!replay_.matches_record(core)) {
    followed(core) = {};
    sink_.lost(core);
  } else if (what == kState && core == Source::output) {
    if (!sink_.has_state(segment, core)) write_output(segment);  // the segment has no room for the core's own state
    write_due(segment);
  }
}

void StateFollower::begin_segment(const CoreId& core, std::uint64_t segment) {
  replay_.forget_effect(core);
  Followed& its = followed(core);
  its.segment = segment;
  its.due.clear();
  const auto room = sink_.room(segment);
  if (!room) return;  // it is too late for this segment
  if (core == Source::output) {
    write_output(segment);
    return write_due(segment);
  }
  if (segment < its.skip_until) return;
  its.due = header_of(core, kState);
  Encoder out(its.due);
  replay_.save(core, out);
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
  for (auto& [core, its] : followed_) {
    if (its.due.empty() || its.segment != segment) continue;
    const auto state = std::exchange(its.due, {});
    const auto room = sink_.room(segment);
    if (!room) continue;
    if (state.size() <= *room) {
      sink_.put_first_state(segment, state);
    } else if (state.size() > sink_.max_room()) {
      its.skip_until = segment + kSkippedSegments;
      sink_.left_out(segment, core, state.size());
    }
  }
}

}  // namespace pagoda::journal
