#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/weights/kept_copies.hpp"
#include "io/journal/journal_lock.hpp"
#include "kernels/device.hpp"

namespace pagoda {

/// Told what an engine that starts is doing, "loading weights" for example, and the share of it that is done, 0 to 1.
/// Called on the thread that creates the engine. Not called for what takes no time, as mapping weights on a CPU.
using StartProgress = std::function<void(std::string_view what, double done)>;

/// What the creator of an engine may bring beside its configuration.
struct EngineSetup {
  /// The device to run on, shared with other engines for example, of the kind that EngineConfig::device names; null = a
  /// new one.
  std::shared_ptr<kernels::Device> device = nullptr;
  StartProgress progress = nullptr;
  /// Where the copies of weights are that outlive the engine, made by an engine of the same configuration before it;
  /// not with EngineConfig::worker_processes. Null: none do.
  std::shared_ptr<weights::KeptCopies> kept_weights = nullptr;
  /// With EngineConfig::worker_processes: a program that calls run_worker_process (pagoda/worker_process.hpp) before
  /// anything else, and its arguments. `pagoda` is such a program: {"/proc/self/exe", "worker"} where this is it.
  std::vector<std::string> worker_command = {};
  /// The journal that is at EngineConfig::journal stays there until EngineHandle::take_journal_place: for one who is
  /// still to take up what it holds.
  bool journal_takes_place_later = false;
  /// The lock of the journal at EngineConfig::journal, where the creator has it already; null: the engine takes it.
  std::shared_ptr<io::JournalLock> journal_lock = nullptr;
};

}  // namespace pagoda
