#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/memory/kv_events.hpp"
#include "engine/weights/kept_copies.hpp"
#include "io/journal/journal_lock.hpp"
#include "kernels/device.hpp"

namespace pagoda {

/// Called with the current activity of a starting engine, "loading weights" for example, and the finished share of it,
/// 0 to 1. Called on the thread that creates the engine. Not called for activities that take no time, such as mapping
/// weights on a CPU.
using StartProgress = std::function<void(std::string_view what, double done)>;

/// Optional settings of an engine's creator, beside its configuration.
struct EngineSetup {
  /// Device to run on, of the kind that EngineConfig::device names. It may be shared with other engines. Null: a new
  /// one is created.
  std::shared_ptr<kernels::Device> device = nullptr;
  StartProgress progress = nullptr;
  /// Copies of weights that outlive the engine, made by an earlier engine of the same configuration. Not with
  /// EngineConfig::worker_processes. Null: there are none.
  std::shared_ptr<weights::KeptCopies> kept_weights = nullptr;
  /// For EngineConfig::worker_processes: a program that first of all calls run_worker_process
  /// (pagoda/worker_process.hpp), and its arguments. `pagoda` is such a program: {"/proc/self/exe", "worker"} if it is
  /// the caller.
  std::vector<std::string> worker_command = {};
  /// Whether the old journal at EngineConfig::journal stays there until EngineHandle::take_journal_place is called,
  /// because the creator must first recover its requests.
  bool journal_takes_place_later = false;
  /// Lock of the journal at EngineConfig::journal, if the creator already has it. Null: the engine takes it.
  std::shared_ptr<io::JournalLock> journal_lock = nullptr;
  /// Gets the changes of the prefix caches of all replicas. Not with a journal that hides tokens. Null: they are not
  /// collected.
  memory::SharedKvEventSink kv_events = nullptr;
};

}  // namespace pagoda
