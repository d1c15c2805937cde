#pragma once

#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "engine/trace/recent_spans.hpp"
#include "engine/trace/step_trace.hpp"
#include "engine/types.hpp"

namespace pagoda::trace {

/// Receives the spans of actors. It writes them to the file of a trace, if there is one, and keeps the last spans in
/// memory while a client watches them. Thread-safe.
class Tracer {
 public:
  /// `file` may be null.
  explicit Tracer(std::unique_ptr<StepTrace> file) : file_(std::move(file)) {}

  /// Returns whether spans are recorded anywhere now.
  bool is_on() const { return file_ != nullptr || recent_.is_on(); }
  /// Adds a process to the file, as StepTrace::add_process.
  int add_process(const std::string& name) {
    return file_ != nullptr ? file_->add_process(name) : StepTrace::kEngineProcess;
  }
  /// `place`: the replica and rank that the span belongs to. Places other than the first have processes of their own in
  /// the file; `process`: another process of add_process().
  void span(Row row, const char* name, TimeUs started_us, TimeUs finished_us, std::initializer_list<Arg> args,
            Place place = {}, std::optional<int> process = std::nullopt) {
    if (file_ != nullptr) file_->span(row, name, started_us, finished_us, args, process ? *process : process_of(place));
    if (recent_.is_on()) recent_.add(row, name, started_us, finished_us, args, place);
  }
  RecentSpans& recent() { return recent_; }

 private:
  int process_of(Place place) {
    if (place == Place{}) return StepTrace::kEngineProcess;
    const std::lock_guard lock(mutex_);
    const auto [found, is_new] = processes_.try_emplace(place, 0);
    if (is_new) {
      found->second =
          file_->add_process("replica " + std::to_string(place.replica) + ", rank " + std::to_string(place.rank),
                             {Row::scheduler, Row::block_manager, Row::cache_engine, Row::device});
    }
    return found->second;
  }

  std::unique_ptr<StepTrace> file_;
  std::mutex mutex_;  ///< guards processes_
  std::map<Place, int> processes_;
  RecentSpans recent_;
};

/// Null: nothing is traced.
using SharedTracer = std::shared_ptr<Tracer>;

inline bool is_on(const SharedTracer& tracer) {
  return tracer != nullptr && tracer->is_on();
}

}  // namespace pagoda::trace
