#pragma once

/// What an engine is doing, as somebody who watches it is told: who holds which block, who waits and runs, what the
/// last steps took. Plain values of bounded size, told as snapshots; nothing of prompts, outputs or keys.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/stats.hpp"
#include "engine/step/outputs.hpp"
#include "engine/trace/recent_spans.hpp"
#include "engine/types.hpp"

namespace pagoda::view {

/// Cells of a block map: a larger pool has cells that stand for several blocks.
inline constexpr std::int32_t kMaxCells = 8192;
/// Sequences that a block map names.
inline constexpr std::size_t kMaxOwners = 512;
/// Requests of each state that are told.
inline constexpr std::size_t kMaxRequests = 100;
/// Moves and ended requests that are remembered.
inline constexpr std::size_t kMaxMoves = 64;
inline constexpr std::size_t kMaxEnded = 50;
/// Spans that are told at once.
inline constexpr std::size_t kMaxSpans = 256;

/// One block of the device pool, or BlockMap::blocks_per_cell of them that follow each other.
struct Cell {
  std::int32_t owner = -1;      ///< of BlockMap::owners: the first of its owners; -1: none that is named there
  std::int32_t references = 0;  ///< owners of its blocks, summed: of one block, above 1 is a shared one
  bool is_cached = false;       ///< the prefix cache finds it; of several blocks: one of those that were looked at

  bool operator==(const Cell&) const = default;
};

/// A sequence that holds blocks.
struct Owner {
  SequenceId sequence = 0;
  RequestId request = 0;
  bool on_host = false;  ///< swapped out: its blocks are none of the map's
  std::int32_t num_blocks = 0;
  std::int32_t num_tokens = 0;  ///< whose KV is computed, or will be by a planned step
};

enum class MoveKind : std::uint8_t { copy, swap_out, swap_in };

/// A block that was moved: copied since it was to be written while others held it (copy-on-write), or swapped.
struct Move {
  StepId step = 0;
  MoveKind kind = MoveKind::copy;
  BlockId from = 0;  ///< of the host pool in a swap_in
  BlockId to = 0;    ///< of the host pool in a swap_out
};

/// Of the block manager, behind the last step that it has planned.
struct BlockMap {
  StepId step = 0;
  std::int32_t block_size = 0;
  std::int32_t num_blocks = 0;
  std::int32_t blocks_per_cell = 1;
  std::vector<Cell> cells;      ///< the last may stand for fewer blocks
  std::vector<Owner> owners;    ///< by id; at most kMaxOwners
  std::int64_t num_owners = 0;  ///< those that are not listed included
  std::vector<Move> moves;      ///< the last ones, oldest first
};

/// waiting_for_grammar: tokenized or not, it is not the scheduler's before its grammar is compiled.
enum class RequestState : std::uint8_t { waiting, running, swapped, waiting_for_grammar };

/// A live request as its scheduler knows it, or the router before that.
struct LiveRequest {
  RequestId id = 0;
  RequestState state = RequestState::waiting;
  std::int32_t num_sequences = 0;  ///< that go on
  std::int64_t prompt_tokens = 0;
  std::int64_t computed_tokens = 0;   ///< whose KV is there, of its sequence that has the most
  std::int64_t generated_tokens = 0;  ///< of all sequences that go on
  std::int64_t max_tokens = 0;        ///< of each
  std::int64_t priority = 0;
  TimeUs arrival_us = 0;
  TimeUs first_scheduled_us = -1;  ///< -1: it has not run yet
  // Told by the output core.
  TimeUs first_token_us = -1;      ///< -1: there is none yet
  std::int64_t cached_tokens = 0;  ///< of its prompt: from the prefix cache
  std::int64_t preemptions = 0;
  std::int64_t restarts = 0;
};

struct StepInFlight {
  StepId step = 0;
  std::int64_t num_tokens = 0;
  std::int64_t num_rows = 0;
};

/// Of the scheduler and the router.
struct Queues {
  /// Running, swapped and waiting ones, each in serving order, then those that wait for a grammar; kMaxRequests each.
  std::vector<LiveRequest> requests;
  std::vector<StepInFlight> steps_in_flight;
};

/// What a scheduler and its block manager tell together.
struct ReplicaView {
  EngineStats stats;
  Queues queues;
  BlockMap blocks;
};

/// How a request has ended.
struct EndedRequest {
  RequestId id = 0;
  std::optional<FinishReason> finish_reason;  ///< the worst of its sequences'; absent: an error
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t completion_tokens = 0;
  TimeUs ended_us = 0;
  TimeUs arrival_us = 0;
  TimeUs first_scheduled_us = -1;
  TimeUs first_token_us = -1;
  std::int64_t preemptions = 0;
  std::int64_t restarts = 0;
};

/// Of the output core: the requests that were asked for, as far as they are open, and those that ended last.
struct RequestFacts {
  struct Open {
    RequestId id = 0;
    TimeUs first_token_us = -1;
    std::int64_t cached_tokens = 0;
    std::int64_t preemptions = 0;
    std::int64_t restarts = 0;
  };
  std::vector<Open> open;
  std::vector<EndedRequest> ended;  ///< oldest first; at most kMaxEnded
};

/// All of it. Its parts were asked for one after the other, so a request may be in one and not in the other.
struct EngineView {
  TimeUs now_us = 0;
  EngineStats stats;
  Queues queues;
  BlockMap blocks;
  std::vector<EndedRequest> ended;
  std::vector<trace::Span> spans;
  std::uint64_t last_span = 0;  ///< what to ask for next
};

}  // namespace pagoda::view
