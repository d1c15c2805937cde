#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine/journal/replay.hpp"
#include "io/journal/journal_file.hpp"
#include "kernels/result.hpp"
#include "pagoda/engine_setup.hpp"
#include "pagoda/step_execution.hpp"

namespace pagoda {

/// Where, and on what, the steps of a journal are run.
struct ExecuteOptions {
  std::string model;          ///< folder; the journal does not say where it lies here
  std::string device;         ///< as EngineConfig; empty = as it was recorded
  std::int32_t threads = -1;  ///< likewise; -1
};

/// Runs the cores of a journal again (journal::Replay). `tokenizer`: the model's, for the output core; null: without
/// it.
journal::ReplayReport replay_journal(const io::JournalContents& journal,
                                     std::shared_ptr<const text::Tokenizer> tokenizer,
                                     const StartProgress& progress = nullptr);

/// Runs its steps as well, on the model: those of the last segments between which nothing is missing. Errors: bad_file
/// (it has nothing that could be run), and as StepExecution::create.
Result<ExecutionReport> execute_journal(const io::JournalContents& journal, const ExecuteOptions& options,
                                        const StartProgress& progress = nullptr);

}  // namespace pagoda
