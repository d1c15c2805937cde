#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "io/serving/request_record.hpp"
#include "kernels/result.hpp"

namespace pagoda::serving {

/// Writes one line, a JSON object, for each request. A thread of its own writes the lines. If this thread cannot keep
/// up, the oldest waiting lines are dropped. Dropped lines and lines whose write fails (as on a full disk) are counted.
class AccessLog final : public RequestObserver {
 public:
  /// Appends to the file `path`; "-" is standard output. Error: bad_config.
  static Result<std::shared_ptr<AccessLog>> open(const std::string& path);
  /// Writes the lines that wait.
  ~AccessLog() override;

  void on_end(const RequestRecord& record) override;
  void write(metrics::PrometheusText& text) const override;

  /// Returns the line of a request, without its line end.
  static std::string line(const RequestRecord& record);

 private:
  class State;
  explicit AccessLog(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pagoda::serving
