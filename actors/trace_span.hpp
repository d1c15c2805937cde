#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "actors/clock.hpp"
#include "engine/trace/tracer.hpp"

namespace pagoda::actors {

/// Records a span from construction to end(). While tracing is off it costs only a load or two.
class TraceSpan {
 public:
  TraceSpan(const trace::SharedTracer& tracer, trace::Row row, const char* name, Place place = {})
      : tracer_(trace::is_on(tracer) ? tracer.get() : nullptr),
        row_(row),
        name_(name),
        place_(place),
        started_us_(tracer_ != nullptr ? now_us() : 0) {}

  void end(std::initializer_list<trace::Arg> args) const {
    if (tracer_ != nullptr) tracer_->span(row_, name_, started_us_, now_us(), args, place_);
  }

 private:
  trace::Tracer* tracer_;
  trace::Row row_;
  const char* name_;
  Place place_;
  TimeUs started_us_;
};

/// Returns a count or an id as an argument of a span.
template <class Number>
trace::Arg arg(const char* name, Number value) {
  return {name, static_cast<std::int64_t>(value)};
}

}  // namespace pagoda::actors
