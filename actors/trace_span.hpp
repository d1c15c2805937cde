#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "actors/clock.hpp"
#include "engine/trace/step_trace.hpp"

namespace pagoda::actors {

/// What an actor does from the construction on until end(). Without a trace it costs a test of a pointer.
class TraceSpan {
 public:
  TraceSpan(const trace::SharedTrace& trace, trace::Row row, const char* name)
      : trace_(trace.get()), row_(row), name_(name), started_us_(trace_ != nullptr ? now_us() : 0) {}

  void end(std::initializer_list<trace::Arg> args) const {
    if (trace_ != nullptr) trace_->span(row_, name_, started_us_, now_us(), args);
  }

 private:
  trace::StepTrace* trace_;
  trace::Row row_;
  const char* name_;
  TimeUs started_us_;
};

/// A count or an id as an argument of a span.
template <class Number>
trace::Arg arg(const char* name, Number value) {
  return {name, static_cast<std::int64_t>(value)};
}

}  // namespace pagoda::actors
