#include "engine/trace/step_trace.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

namespace pagoda::trace {
namespace {

std::string row_header(int process, std::size_t row, const char* what, const nlohmann::json& args) {
  return nlohmann::json{{"ph", "M"}, {"pid", process}, {"tid", row + 1}, {"name", what}, {"args", args}}.dump();
}

std::string process_header(int process, const std::string& name) {
  return row_header(process, 0, "process_name", {{"name", name}});
}

std::string thread_header(int process, std::size_t row) {
  return row_header(process, row, "thread_name", {{"name", kRowNames[row]}}) + ",\n" +
         row_header(process, row, "thread_sort_index", {{"sort_index", row}});
}

}  // namespace

StepTrace::StepTrace(std::unique_ptr<std::ostream> out, std::int64_t max_events)
    : out_(std::move(out)), max_events_(max_events) {
  *out_ << R"({"displayTimeUnit":"ms","traceEvents":[)" << '\n' << process_header(kEngineProcess, "pagoda");
  for (std::size_t row = 0; row < kRowNames.size(); ++row) *out_ << ",\n" << thread_header(kEngineProcess, row);
}

StepTrace::~StepTrace() {
  *out_ << "\n],\"otherData\":{\"events\":" << num_events_ << ",\"dropped_events\":" << num_dropped_ << "}}\n";
  out_->flush();
}

int StepTrace::add_process(const std::string& name, std::initializer_list<Row> rows) {
  const std::lock_guard lock(mutex_);
  const int process = ++num_processes_;
  *out_ << ",\n" << process_header(process, name);
  for (const Row row : rows) *out_ << ",\n" << thread_header(process, static_cast<std::size_t>(row));
  return process;
}

void StepTrace::span(Row row, const char* name, TimeUs started_us, TimeUs finished_us, std::initializer_list<Arg> args,
                     int process) {
  std::string text = R"({"ph":"X","pid":)" + std::to_string(process) + R"(,"tid":)" +
                     std::to_string(static_cast<int>(row) + 1) + R"(,"ts":)" + std::to_string(started_us) +
                     R"(,"dur":)" + std::to_string(std::max<TimeUs>(finished_us - started_us, 0)) + R"(,"name":")" +
                     name + R"(","args":{)";
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
