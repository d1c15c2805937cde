#pragma once

/// Conclusions from the facts of a machine.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/doctor/facts.hpp"

namespace pagoda::apps {

/// good: nothing to do. note: worth knowing. slow: it runs, but could run better. fatal: it would not run.
enum class Severity : std::uint8_t { good, note, slow, fatal };

/// Returns "ok", "note", "slow" or "fail".
std::string_view to_string(Severity severity);

struct Finding {
  std::string topic;  ///< "processor", "memory", ...: one or two words
  Severity severity = Severity::good;
  std::string what;  ///< the fact
  std::string why;   ///< why it matters
  std::string todo;  ///< the advice; empty: nothing to do
};

/// Returns at least one finding for each part of the facts, in their order.
std::vector<Finding> examine(const MachineFacts& facts);

/// Returns whether no finding is fatal.
bool would_run(std::span<const Finding> findings);

/// Returns text for people: a line for each finding, and below findings that need action the reason and the advice.
std::string as_text(std::span<const Finding> findings);

/// Returns one line for programs: {"runs": …, "findings": [{"topic", "severity", "what", "why", "todo"}, …]}.
std::string as_json(std::span<const Finding> findings);

}  // namespace pagoda::apps
