#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/execution/cache_order.hpp"
#include "engine/execution/step_order.hpp"
#include "engine/journal/journal.hpp"
#include "engine/memory/block_space_manager.hpp"
#include "engine/output/output_core.hpp"
#include "engine/routing/router_core.hpp"
#include "engine/scheduling/scheduler_core.hpp"

namespace pagoda::journal {

inline constexpr std::size_t kNumSources = 7;

/// A difference between what a core did and its record.
struct Difference {
  std::uint64_t segment = 0;
  std::size_t record = 0;  ///< index in the segment, from 0
  CoreId core;
  std::string what;
};

struct ReplayReport {
  std::int64_t num_segments = 0;
  std::int64_t num_records = 0;
  std::array<std::int64_t, kNumSources> num_inputs{};  ///< by Source
  std::int64_t num_effects = 0;                        ///< number of effects that were compared
  /// Number of states that were compared: those of segments after the first.
  std::int64_t num_states = 0;
  /// Records of the output core that were skipped: without a tokenizer, or recovery states.
  std::int64_t num_not_replayed = 0;
  std::int64_t num_steps = 0;  ///< number of steps that the scheduler sent to be executed
  StepId first_step = 0;       ///< the first of these steps, of any replica
  StepId last_step = 0;
  std::vector<Difference> differences;  ///< the first difference of each core in each segment
};

/// Callbacks that receive what passes between the cores. Each may be empty.
struct ReplayWatcher {
  std::function<void(const std::string& setup)> setup;
  std::function<void(const CachePlan&)> cache_plan;  ///< called before the step that the plan belongs to
  std::function<void(const ExecuteStep&)> step;
  std::function<void(const StepMasks&)> masks;
  std::function<void(const StepResult&)> result;  ///< receives the recorded result
  std::function<void(bool memory_lost)> device_replaced;
  /// Compiles grammars, so that steps have the masks that they had. Without it steps have no masks.
  std::function<grammar::SharedGrammar(const StructuredOutput&)> grammar;
};

/// Runs the cores of a journal again and compares every effect, and the states that segments begin with. A core that
/// differs is skipped until its next state. Bytes that are no record count as a difference. The cores take inputs as
/// they take them from their actors, and abort where they would abort there: this reproduces a crash.
class Replay {
 public:
  /// `tokenizer`: that of the served model; without it the output core is not run.
  explicit Replay(ReplayWatcher watcher = {}, std::shared_ptr<const text::Tokenizer> tokenizer = nullptr)
      : watcher_(std::move(watcher)), tokenizer_(std::move(tokenizer)) {}

  /// `follows_gap`: whether records are missing before the segment. Then each core is skipped until its next state.
  void begin_segment(std::uint64_t number, bool follows_gap = false);
  void record(std::span<const std::byte> bytes);
  const ReplayReport& report() const { return report_; }

  /// Returns whether the core's state is known and the core has done all that its records hold.
  bool matches_record(const CoreId& core) const {
    const auto found = progress_.find(core);
    return found != progress_.end() && found->second.is_known;
  }
  /// Writes the part of a state record that follows the header. matches_record(core) must be true.
  void save(const CoreId& core, Encoder& out) const;
  /// Treats the core as unknown until its next state.
  void forget(const CoreId& core) { progress_of(core) = {}; }
  /// Drops an effect whose digest has not been read yet: another segment has begun, which leaves the digest out.
  void forget_effect(const CoreId& core) { progress_of(core).effect.reset(); }

  /// Return the core as it is now; null before its first state.
  const output::OutputCore* output() const { return output_.get(); }

  /// The cores of a replica as they are now; null before their first states.
  struct OfReplica {
    scheduling::SchedulerConfig scheduler_config;
    std::unique_ptr<scheduling::SchedulerCore> scheduler;
    memory::BlockSpaceConfig block_config;
    std::unique_ptr<memory::BlockSpaceManager> block_manager;
    std::map<SequenceId, SharedTokens> offered;  ///< waiting candidates of the last plan
    std::map<RankId, execution::StepOrder> step_orders;
    std::map<RankId, execution::CacheOrder> cache_orders;
  };
  const OfReplica& replica(ReplicaId id) { return replicas_[id]; }

 private:
  struct CoreProgress {
    bool is_known = false;  ///< whether its state has been read and nothing has differed since
    /// Digest and name of an effect that has not been compared yet.
    std::optional<std::uint64_t> effect;
    std::string effect_name;
  };

  bool load_state(const CoreId& core, Decoder& in);
  bool load_scheduler(const CoreId& core, bool went_on, Decoder& in);
  bool load_block_manager(const CoreId& core, bool went_on, Decoder& in);
  bool apply_input(const CoreId& core, std::uint8_t input, Decoder& in);
  SharedSpec with_grammar(SharedSpec spec) const;
  static void add_words(scheduling::SchedulerCore& scheduler, std::vector<scheduling::MadeMask>& made);
  bool apply_scheduler_input(const CoreId& core, std::uint8_t input, Decoder& in);
  bool apply_block_manager_input(const CoreId& core, std::uint8_t input, Decoder& in);
  bool apply_step_order_input(const CoreId& core, std::uint8_t input, Decoder& in);
  bool apply_cache_order_input(const CoreId& core, std::uint8_t input, Decoder& in);
  // replay_requests.cpp
  bool load_router(bool went_on, Decoder& in);
  bool load_output(bool went_on, Decoder& in);
  bool apply_router_input(std::uint8_t input, Decoder& in);
  bool apply_output_input(std::uint8_t input, Decoder& in);
  void effects(const routing::RouterCore::Effects& effects, std::string name);
  void compare_effect(const CoreId& core, Decoder& in);
  template <class Effect>
  void effect(const CoreId& core, const Effect& effect, std::string name) {
    progress_of(core).effect = digest(encode(effect));
    progress_of(core).effect_name = std::move(name);
  }
  /// Returns whether the rest of the record is the state of the core.
  template <class Core>
  static bool has_state(const Core& core, const Decoder& in) {
    std::vector<std::byte> bytes;
    Encoder out(bytes);
    if constexpr (HasFields<Core>) {
      out.put(core);
    } else {
      core.save(out);
    }
    return std::ranges::equal(bytes, in.rest());
  }
  /// Compares the state that the core has reached with the rest of the record.
  template <class Core>
  void compare_state(const CoreId& id, const Core& core, const Decoder& in) {
    ++report_.num_states;
    if (!has_state(core, in)) differs(id, "has reached another state than its record");
  }
  /// Does so too, unless the record is the state of a new core, which has replaced the core.
  template <class Core>
  void compare_unless_new(const CoreId& id, const Core& core, const Core& fresh, const Decoder& in) {
    if (!has_state(fresh, in)) compare_state(id, core, in);
  }
  template <class Order>
  bool load_order(const CoreId& core, bool went_on, Order& order, Decoder& in);
  CoreProgress& progress_of(const CoreId& core) { return progress_[core]; }
  void differs(const CoreId& core, std::string what);

  ReplayWatcher watcher_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  ReplayReport report_;
  std::map<CoreId, CoreProgress> progress_;
  std::uint64_t segment_ = 0;
  std::size_t record_ = 0;

  std::map<ReplicaId, OfReplica> replicas_;
  routing::AdmissionLimits router_limits_;
  TimeUs router_started_us_ = 0;
  std::unique_ptr<routing::RouterCore> router_;
  std::unique_ptr<output::OutputCore> output_;
};

/// Reads all arguments of an input. Returns false if one cannot be read or if bytes are left over.
template <class... Fields>
bool read(Decoder& in, Fields&... fields) {
  return (in.get(fields) && ...) && in.num_left() == 0;
}

}  // namespace pagoda::journal
