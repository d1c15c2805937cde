#include "engine/trace/step_trace.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace pagoda::trace {
namespace {

std::string row_header(std::size_t row, const char* what, const std::string& args) {
  return R"({"ph":"M","pid":1,"tid":)" + std::to_string(row + 1) + R"(,"name":")" + what + R"(","args":{)" + args +
         "}}";
}

}  // namespace

StepTrace::StepTrace(std::unique_ptr<std::ostream> out, std::int64_t max_events)
    : out_(std::move(out)), max_events_(max_events) {
  *out_ << R"({"displayTimeUnit":"ms","traceEvents":[)" << '\n' << row_header(0, "process_name", R"("name":"pagoda")");
  for (std::size_t row = 0; row < kRowNames.size(); ++row) {
    *out_ << ",\n" << row_header(row, "thread_name", R"("name":")" + std::string(kRowNames[row]) + '"');
    *out_ << ",\n" << row_header(row, "thread_sort_index", R"("sort_index":)" + std::to_string(row));
  }
}

StepTrace::~StepTrace() {
  *out_ << "\n],\"otherData\":{\"events\":" << num_events_ << ",\"dropped_events\":" << num_dropped_ << "}}\n";
  out_->flush();
}

void StepTrace::span(Row row, const char* name, TimeUs started_us, TimeUs finished_us,
                     std::initializer_list<Arg> args) {
  std::string text = R"({"ph":"X","pid":1,"tid":)" + std::to_string(static_cast<int>(row) + 1) + R"(,"ts":)" +
                     std::to_string(started_us) + R"(,"dur":)" +
                     std::to_string(std::max<TimeUs>(finished_us - started_us, 0)) + R"(,"name":")" + name +
                     R"(","args":{)";
  const char* separator = "";
  for (const Arg& arg : args) {
    text.append(separator).append("\"").append(arg.name).append("\":").append(std::to_string(arg.value));
    separator = ",";
  }
  text += "}}";
  const std::lock_guard lock(mutex_);
  if (num_events_ == max_events_) {
    ++num_dropped_;
    return;
  }
  ++num_events_;
  *out_ << ",\n" << text;
}

}  // namespace pagoda::trace
