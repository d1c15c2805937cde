#pragma once

#include <initializer_list>
#include <memory>
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
  void span(Row row, const char* name, TimeUs started_us, TimeUs finished_us, std::initializer_list<Arg> args,
            int process = StepTrace::kEngineProcess) {
    if (file_ != nullptr) file_->span(row, name, started_us, finished_us, args, process);
    if (recent_.is_on()) recent_.add(row, name, started_us, finished_us, args);
  }
  RecentSpans& recent() { return recent_; }

 private:
  std::unique_ptr<StepTrace> file_;
  RecentSpans recent_;
};

/// Null: nothing is traced.
using SharedTracer = std::shared_ptr<Tracer>;

inline bool is_on(const SharedTracer& tracer) {
  return tracer != nullptr && tracer->is_on();
}

}  // namespace pagoda::trace
