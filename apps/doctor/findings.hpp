#pragma once

/// What follows from the facts of a machine.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/doctor/facts.hpp"

namespace pagoda::apps {

/// good: nothing to do. note: worth knowing. slow: it runs, and could run better. fatal: it would not run.
enum class Severity : std::uint8_t { good, note, slow, fatal };

/// "ok", "note", "slow", "fail".
std::string_view to_string(Severity severity);

struct Finding {
  std::string topic;  ///< "processor", "memory", ...: one word or two
  Severity severity = Severity::good;
  std::string what;  ///< what is so
  std::string why;   ///< why it matters
  std::string todo;  ///< what to do; empty: nothing
};

/// One finding or more for each part of the facts, in their order.
std::vector<Finding> examine(const MachineFacts& facts);

/// Whether nothing keeps Pagoda from running.
bool would_run(std::span<const Finding> findings);

/// For people: a line for each finding, and why and what to do below those that ask for something.
std::string as_text(std::span<const Finding> findings);

/// For programs: {"runs": …, "findings": [{"topic", "severity", "what", "why", "todo"}, …]}, one line.
std::string as_json(std::span<const Finding> findings);

}  // namespace pagoda::apps
