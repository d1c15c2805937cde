#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "io/serving/request_record.hpp"
#include "kernels/result.hpp"

namespace pagoda::serving {

/// A JSON object a line for each request. A thread of its own writes: where it cannot keep up, lines are dropped, the
/// oldest first, and counted; so are those that a file does not take, as on a full disk.
class AccessLog final : public RequestObserver {
 public:
  /// Appends to the file `path`; "-" is standard output. Error: bad_config.
  static Result<std::shared_ptr<AccessLog>> open(const std::string& path);
  /// Writes what waits.
  ~AccessLog() override;

  void on_end(const RequestRecord& record) override;
  void write(metrics::PrometheusText& text) const override;

  /// What is written of a request, without a line end.
  static std::string line(const RequestRecord& record);

 private:
  class State;
  explicit AccessLog(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pagoda::serving
