#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/result.hpp"

namespace pagoda::kernels {

/// Collects the first violation of one op.
class Checker {
 public:
  explicit Checker(std::string_view op) : op_(op) {}

  Checker& require(bool condition, std::string_view rule, std::int64_t value) {
    if (condition || !status_) return *this;
    status_ = fail(ErrorCode::internal, std::string(op_) + ": " + std::string(rule) + ", not " + std::to_string(value));
    return *this;
  }

  /// For a rule on which the message has no value to show.
  Checker& require(bool condition, std::string_view rule) {
    if (condition || !status_) return *this;
    status_ = fail(ErrorCode::internal, std::string(op_) + ": " + std::string(rule));
    return *this;
  }

  Checker& require_pointer(const void* pointer, std::string_view name) {
    if (pointer != nullptr || !status_) return *this;
    status_ = fail(ErrorCode::internal, std::string(op_) + ": " + std::string(name) + " must not be null");
    return *this;
  }

  /// Requires each values[i] to be in [low, high).
  template <class Integer>
  Checker& require_range(const Integer* values, std::int64_t count, std::int64_t low, std::int64_t high,
                         std::string_view name) {
    if (!status_) return *this;
    const auto* bad = std::find_if(values, values + count, [=](Integer v) { return v < low || v >= high; });
    if (bad == values + count) return *this;
    status_ = fail(ErrorCode::internal, std::string(op_) + ": " + std::string(name) + "[" +
                                            std::to_string(bad - values) + "] must be in [" + std::to_string(low) +
                                            ", " + std::to_string(high) + "), not " + std::to_string(*bad));
    return *this;
  }

  bool ok() const { return status_.has_value(); }
  Status status() const { return status_; }

 private:
  std::string_view op_;
  Status status_;
};

}  // namespace pagoda::kernels
