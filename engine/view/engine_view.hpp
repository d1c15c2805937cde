#pragma once

/// A view of a running engine for monitoring: which sequence holds which block, which requests wait and run, how long
/// the last steps took. Plain values of bounded size, sent as snapshots. They contain no prompts, outputs or keys.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/stats.hpp"
#include "engine/step/outputs.hpp"
#include "engine/trace/recent_spans.hpp"
#include "engine/types.hpp"

namespace pagoda::view {

/// Largest number of cells of a block map. In a larger pool a cell stands for several blocks.
inline constexpr std::int32_t kMaxCells = 8192;
/// Largest number of sequences that a block map names.
inline constexpr std::size_t kMaxOwners = 512;
/// Largest number of listed requests of each state.
inline constexpr std::size_t kMaxRequests = 100;
/// Largest numbers of remembered moves and ended requests.
inline constexpr std::size_t kMaxMoves = 64;
inline constexpr std::size_t kMaxEnded = 50;
/// Largest number of spans in a view.
inline constexpr std::size_t kMaxSpans = 256;

/// One block of the device pool, or BlockMap::blocks_per_cell consecutive blocks.
struct Cell {
  std::int32_t owner = -1;      ///< index in BlockMap::owners of its first owner; -1: no owner is named there
  std::int32_t references = 0;  ///< sum of the owners of its blocks; above 1 for a single block: the block is shared
  /// Whether the prefix cache finds it; for several blocks: whether it finds one of those that were looked at.
  bool is_cached = false;

  bool operator==(const Cell&) const = default;
};

/// A sequence that holds blocks.
struct Owner {
  SequenceId sequence = 0;
  RequestId request = 0;
  bool on_host = false;  ///< whether it is swapped out; its blocks are not in the map then
  std::int32_t num_blocks = 0;
  std::int32_t num_tokens = 0;  ///< tokens whose KV is computed, or will be by a planned step
};

enum class MoveKind : std::uint8_t { copy, swap_out, swap_in };

/// A block that was moved: copied because it was to be written while other sequences held it (copy-on-write), or
/// swapped.
struct Move {
  StepId step = 0;
  MoveKind kind = MoveKind::copy;
  BlockId from = 0;  ///< in the host pool for a swap_in
  BlockId to = 0;    ///< in the host pool for a swap_out
};

/// The blocks of a block manager after the last step that it has planned.
struct BlockMap {
  StepId step = 0;
  std::int32_t block_size = 0;
  std::int32_t num_blocks = 0;
  std::int32_t blocks_per_cell = 1;
  std::vector<Cell> cells;      ///< the last cell may stand for fewer blocks
  std::vector<Owner> owners;    ///< ordered by id; at most kMaxOwners
  std::int64_t num_owners = 0;  ///< number of owners, including those that are not listed
  std::vector<Move> moves;      ///< the last moves, oldest first
};

/// waiting_for_grammar: the scheduler does not have the request before its grammar is compiled, even if it is
/// tokenized.
enum class RequestState : std::uint8_t { waiting, running, swapped, waiting_for_grammar };

/// A live request as its scheduler knows it; before it is scheduled, as the router knows it.
struct LiveRequest {
  RequestId id = 0;
  RequestState state = RequestState::waiting;
  ReplicaId replica = 0;           ///< replica that has it; 0 before it is scheduled
  std::int32_t num_sequences = 0;  ///< number of sequences that have not ended
  std::int64_t prompt_tokens = 0;
  std::int64_t computed_tokens = 0;   ///< tokens whose KV is computed, in the sequence that has most of them
  std::int64_t generated_tokens = 0;  ///< tokens of all sequences that have not ended
  std::int64_t max_tokens = 0;        ///< limit of each sequence
  std::int64_t priority = 0;
  std::string adapter;  ///< name of its adapter; empty = the base model
  TimeUs arrival_us = 0;
  TimeUs first_scheduled_us = -1;  ///< -1: it has not run yet
  // Reported by the output core.
  TimeUs first_token_us = -1;      ///< -1: there is no token yet
  std::int64_t cached_tokens = 0;  ///< tokens of its prompt that came from the prefix cache
  std::int64_t preemptions = 0;
  std::int64_t restarts = 0;
  std::int64_t draft_tokens = 0;
  std::int64_t drafts_accepted = 0;
};

struct StepInFlight {
  StepId step = 0;
  std::int64_t num_tokens = 0;
  std::int64_t num_rows = 0;
  ReplicaId replica = 0;  ///< each replica counts its own steps
};

/// The requests of the scheduler and the router, and the steps in flight.
struct Queues {
  /// Running, swapped and waiting requests of each replica, each in serving order, then those that wait for a grammar;
  /// at most kMaxRequests of each.
  std::vector<LiveRequest> requests;
  std::vector<StepInFlight> steps_in_flight;
};

/// The combined report of a scheduler and its block manager.
struct ReplicaView {
  EngineStats stats;
  Queues queues;
  BlockMap blocks;
};

/// A request that has ended, and how it ended.
struct EndedRequest {
  RequestId id = 0;
  std::optional<FinishReason> finish_reason;  ///< the worst reason of its sequences; absent: an error
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t completion_tokens = 0;
  std::string adapter;
  TimeUs ended_us = 0;
  TimeUs arrival_us = 0;
  TimeUs first_scheduled_us = -1;
  TimeUs first_token_us = -1;
  std::int64_t preemptions = 0;
  std::int64_t restarts = 0;
  std::int64_t draft_tokens = 0;
  std::int64_t drafts_accepted = 0;
};

/// The report of the output core: the open ones of the requests that the query named, and the requests that ended last.
struct RequestFacts {
  struct Open {
    RequestId id = 0;
    TimeUs first_token_us = -1;
    std::int64_t cached_tokens = 0;
    std::int64_t preemptions = 0;
    std::int64_t restarts = 0;
    std::int64_t draft_tokens = 0;
    std::int64_t drafts_accepted = 0;
  };
  std::vector<Open> open;
  std::vector<EndedRequest> ended;  ///< oldest first; at most kMaxEnded
};

/// The complete view. Its parts are queried one after another, so a request may be in one part and not in another.
struct EngineView {
  TimeUs now_us = 0;
  EngineStats stats;
  Queues queues;  ///< of all replicas
  std::int32_t num_replicas = 1;
  ReplicaId replica = 0;  ///< replica of `blocks`
  BlockMap blocks;
  std::vector<EndedRequest> ended;
  std::vector<trace::Span> spans;
  std::uint64_t last_span = 0;  ///< the number to pass to the next query
};

}  // namespace pagoda::view
