#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <ostream>
#include <string>

#include "engine/types.hpp"

namespace pagoda::trace {

/// The rows of a trace, from top to bottom.
enum class Row : std::uint8_t { router, scheduler, block_manager, cache_engine, device, output_processor };

inline constexpr std::array<const char*, 6> kRowNames{"router",       "scheduler", "block manager",
                                                      "cache engine", "device",    "output processor"};

/// A number shown with a span.
struct Arg {
  const char* name;
  std::int64_t value;
};

/// Writes spans as Chrome trace-event JSON (object form, complete events, microseconds), which Perfetto and
/// chrome://tracing open. Spans are written as they come, and the destructor closes the document. Thread-safe.
class StepTrace {
 public:
  /// Writes at most `max_events` spans; later spans are only counted, in otherData.dropped_events. Names of spans and
  /// arguments must be literals that need no escaping.
  StepTrace(std::unique_ptr<std::ostream> out, std::int64_t max_events);
  ~StepTrace();
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  /// Adds a process besides the engine's, with rows of its own. Returns its number for span().
  int add_process(const std::string& name, std::initializer_list<Row> rows = {Row::device});
  void span(Row row, const char* name, TimeUs started_us, TimeUs finished_us, std::initializer_list<Arg> args,
            int process = kEngineProcess);

  static constexpr int kEngineProcess = 1;

 private:
  std::unique_ptr<std::ostream> out_;
  const std::int64_t max_events_;
  std::mutex mutex_;  ///< guards the fields below and out_
  int num_processes_ = kEngineProcess;
  std::int64_t num_events_ = 0;
  std::int64_t num_dropped_ = 0;
};

}  // namespace pagoda::trace
