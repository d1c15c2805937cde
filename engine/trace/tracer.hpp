#pragma once

#include <initializer_list>
#include <memory>
#include <utility>

#include "engine/trace/recent_spans.hpp"
#include "engine/trace/step_trace.hpp"
#include "engine/types.hpp"

namespace pagoda::trace {

/// Where actors tell what they did when: the file of a trace, where one is written, and the last spans in memory, while
/// somebody looks. Thread-safe.
class Tracer {
 public:
  /// `file` may be null.
  explicit Tracer(std::unique_ptr<StepTrace> file) : file_(std::move(file)) {}

  /// Whether spans go anywhere now.
  bool is_on() const { return file_ != nullptr || recent_.is_on(); }
  /// As StepTrace::add_process.
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
