#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/scheduling/execution.hpp"
#include "engine/scheduling/waiting_queue.hpp"
#include "engine/types.hpp"

namespace pagoda::scheduling {

enum class SequenceState : std::uint8_t {
  waiting,   ///< holds no KV; must be admitted
  running,   ///< holds KV on the device and, while it takes part in steps, a batch row
  swapped,   ///< its KV is in the host pool
  finished,  ///< will never run again; results in flight are dropped
};

/// One sequence of a request, as the scheduler sees it. Positions count from the prompt's first token.
struct Sequence {
  SequenceId id = 0;
  std::int32_t index = 0;  ///< within the request
  TokenIds output;         ///< sampled and known
  std::int32_t num_placeholders = 0;  ///< samples of steps in flight
  SequenceState state = SequenceState::waiting;
  std::int32_t num_computed = 0;      ///< tokens whose KV is computed or will be by a step in flight
  std::int32_t num_confirmed = 0;     ///< of them, by steps that have succeeded
  std::int32_t num_reported = 0;      ///< confirmed tokens that the block manager was told of
  std::size_t num_reported_tokens = 0;  ///< output tokens that the block manager knows
  std::int32_t epoch = 0;             ///< raised when its KV is thrown away; results of older epochs bring only tokens
  RowId row = -1;
  SharedTokens recompute_tokens;  ///< prompt and output, made once per preemption; null = the prompt alone
};

/// All sequences of one request.
struct SequenceGroup {
  SharedSpec spec;
  QueueEntry entry;
  std::vector<Sequence> sequences;  ///< one until the prompt is done, then one per sample
  std::int32_t num_in_flight = 0;   ///< steps in flight that include it
  std::int32_t rows_reserved = 0;
  bool in_running = false;          ///< listed in the running queue; likewise below
  bool in_swapped = false;
  bool in_waiting = false;
  bool forked = false;              ///< the prompt's samples have become sequences
  bool grew_too_large = false;      ///< ends with finish reason length once nothing is in flight
  TimeUs first_scheduled_us = -1;
  std::int64_t cached_tokens = 0;

  std::int32_t num_samples() const { return static_cast<std::int32_t>(spec->sampling.n); }
  std::int32_t prompt_len() const { return static_cast<std::int32_t>(spec->prompt->size()); }
  /// Tokens of the sequence, placeholders included.
  std::int32_t length(const Sequence& s) const {
    return prompt_len() + static_cast<std::int32_t>(s.output.size()) + s.num_placeholders;
  }
  std::int64_t num_generated(const Sequence& s) const {
    return static_cast<std::int64_t>(s.output.size()) + s.num_placeholders;
  }
  /// Tokens that may be run now: 0 while the next step depends on a result in flight or nothing is left to generate.
  std::int32_t runnable_tokens(const Sequence& s) const {
    if (s.state == SequenceState::finished || num_generated(s) >= spec->sampling.max_tokens) return 0;
    if (!forked && num_samples() > 1 && s.num_placeholders > 0) return 0;  // the fork needs the samples
    return length(s) - s.num_computed;
  }
  std::int32_t num_unfinished() const {
    if (!forked) return num_samples();
    std::int32_t count = 0;
    for (const Sequence& s : sequences) count += s.state == SequenceState::finished ? 0 : 1;
    return count;
  }
  bool any(SequenceState state) const {
    for (const Sequence& s : sequences) {
      if (s.state == state) return true;
    }
    return false;
  }
  bool all_finished() const {
    for (const Sequence& s : sequences) {
      if (s.state != SequenceState::finished) return false;
    }
    return true;
  }
};

}  // namespace pagoda::scheduling
